#pragma once

// The result of a way of training, across processes: each way runs in processes of its own, so its
// peak of memory is its own.

#include "support/machine.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <new>
#include <string>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace bench {

struct Outcome {
    double seconds = 0;  ///< of training, on rank 0
    double accuracy = 0; ///< on images that were not trained on
    std::uint64_t updates = 0;
    /// Bytes of payload that began or ended at rank 0, of another rank.
    std::uint64_t through = 0;
    std::uint64_t own_moves = 0; ///< the part of these that rank 0 read and wrote itself
    /// The growth of each rank's process in bytes, from its beginning.
    std::uint64_t peak[8] = {};
};

/// A plain value in memory that children share with their parent.
template <class T>
class Shared {
public:
    Shared() : value_(mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
        if (value_ == MAP_FAILED) {
            std::perror("mmap");
            std::exit(1);
        }
        new (value_) T{};
    }
    Shared(const Shared&) = delete;
    Shared& operator=(const Shared&) = delete;
    ~Shared() { munmap(value_, sizeof(T)); }
    T& operator*() const { return *static_cast<T*>(value_); }
    T* operator->() const { return static_cast<T*>(value_); }

private:
    void* value_;
};

/// Runs `body` in a process of its own. Returns false if it failed.
template <class Body>
bool in_child(Body body) {
    std::fflush(nullptr);
    const pid_t child = ::fork();
    if (child < 0) return false;
    if (child == 0) {
        int status = 1;
        try {
            body();
            status = 0;
        } catch (const std::exception& failed) {
            std::fprintf(stderr, "ways_to_train: %s\n", failed.what());
        }
        _exit(status);
    }
    int status = 0;
    return ::waitpid(child, &status, 0) == child && status == 0;
}

/// The growth of this process from now on.
class Growth {
public:
    Growth() {
        std::ofstream("/proc/self/clear_refs") << "5\n"; // resets the peak
        begin_ = kilobytes("VmRSS:");
    }
    [[nodiscard]] std::uint64_t peak() const {
        const std::uint64_t most = kilobytes("VmHWM:");
        return most > begin_ ? (most - begin_) * 1024 : 0;
    }

private:
    static std::uint64_t kilobytes(const std::string& what) {
        std::ifstream in("/proc/self/status");
        for (std::string line; std::getline(in, line);) {
            if (line.starts_with(what)) return std::strtoull(line.c_str() + what.size(), nullptr, 10);
        }
        return 0;
    }
    std::uint64_t begin_;
};

} // namespace bench

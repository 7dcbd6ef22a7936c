#pragma once

// The conditions of the figures: the machine's name, its load, and how long a cache line travels
// between two cores.

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sched.h>
#include <string>
#include <sys/utsname.h>
#include <thread>
#include <vector>

namespace bench {

inline double now_s() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// The cores that the program had at the first call.
inline const std::vector<int>& cores() {
    static const std::vector<int> all = [] {
        std::vector<int> found;
        cpu_set_t set;
        CPU_ZERO(&set);
        if (sched_getaffinity(0, sizeof set, &set) != 0) return std::vector<int>{0};
        for (int core = 0; core < CPU_SETSIZE; ++core) {
            if (CPU_ISSET(core, &set)) found.push_back(core);
        }
        return found;
    }();
    return all;
}

/// Binds the calling thread to the i-th of the program's cores, modulo their number.
inline void bind_to(const std::vector<int>& all, int i) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(all[static_cast<std::size_t>(i) % all.size()], &one);
    sched_setaffinity(0, sizeof one, &one);
}

inline std::string first_line_with(const char* file, const std::string& word) {
    std::ifstream in(file);
    for (std::string line; std::getline(in, line);) {
        if (line.starts_with(word)) {
            const auto colon = line.find(": ");
            return colon == std::string::npos ? line : line.substr(colon + 2);
        }
    }
    return "unknown";
}

/// Nanoseconds for a cache line to go to another core and back: the best of several batches.
inline double round_trip_ns(std::uint32_t batches = 9, std::uint32_t turns = 20000) {
    const auto& all = cores();
    if (all.size() < 2) return 0;
    alignas(128) std::atomic<std::uint32_t> ping{0};
    alignas(128) std::atomic<std::uint32_t> pong{0};
    std::thread other([&] {
        bind_to(all, 1);
        for (std::uint32_t turn = 1; turn <= batches * turns; ++turn) {
            while (ping.load(std::memory_order_acquire) < turn) {
            }
            pong.store(turn, std::memory_order_release);
        }
    });
    double best = 1e9;
    std::thread first([&] {
        bind_to(all, 0);
        std::uint32_t turn = 0;
        for (std::uint32_t batch = 0; batch < batches; ++batch) {
            const double begin = now_s();
            for (std::uint32_t i = 0; i < turns; ++i) {
                ping.store(++turn, std::memory_order_release);
                while (pong.load(std::memory_order_acquire) < turn) {
                }
            }
            best = std::min(best, (now_s() - begin) / turns * 1e9);
        }
    });
    first.join();
    other.join();
    return best;
}

inline nlohmann::json describe_machine() {
    utsname system{};
    uname(&system);
    double load = 0;
    if (std::ifstream in("/proc/loadavg"); in) in >> load;
    return {
        {"processor", first_line_with("/proc/cpuinfo", "model name")}, {"cores", cores().size()},
            {"hypervisor", first_line_with("/proc/cpuinfo", "flags").find(" hypervisor") != std::string::npos},
            {"system", std::string(system.sysname) + " " + system.release},
            {"real_time_priority", sched_getscheduler(0) == SCHED_FIFO}, {"load", load},
#if defined(__clang__)
            {"compiler", "clang " __clang_version__},
#else
            {"compiler", "g++ " __VERSION__},
#endif
            {"round_trip_ns", round_trip_ns()},
    };
}

} // namespace bench

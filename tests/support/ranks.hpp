// The ranks of a test: threads or processes. The translation unit that includes a suite chooses.
#pragma once

#include "sanitizers.hpp"
#include "unisono/group/run_processes.hpp"
#include "unisono/transport/in_process.hpp"
#include "unisono/transport/shared_memory.hpp"

#include <memory>
#include <new>
#include <string_view>
#include <sys/mman.h>
#include <type_traits>

#ifndef UNISONO_TEST_TRANSPORT
#define UNISONO_TEST_TRANSPORT unisono::InProcess
#endif

namespace test {

using Transport = UNISONO_TEST_TRANSPORT;

/// ThreadSanitizer starts a thread of its own, and does not see other processes. With it, ranks are
/// threads that share a world as processes do.
inline constexpr bool on_processes = unisono::process_transport<Transport> && !under_thread_sanitizer;

/// With AnyTransport a test chooses threads or processes at run time.
inline constexpr bool of_any_kind = Transport::name == std::string_view("any");

/// Whether the ranks of later worlds are processes, with AnyTransport.
inline bool any_on_processes = false;

/// Whether the ranks of the next world are processes.
inline bool will_be_processes() {
    if constexpr (of_any_kind) return any_on_processes;
    else return on_processes;
}

/// A value that is shared with processes forked later.
template <class T>
class Shared {
public:
    Shared() : value_(::new(map()) T{}) {}
    Shared(const Shared&) = delete;
    Shared& operator=(const Shared&) = delete;
    ~Shared() { ::munmap(value_, sizeof(T)); }
    T& operator*() const { return *value_; }
    T* operator->() const { return value_; }

private:
    static_assert(std::is_trivially_destructible_v<T>);
    static void* map() {
        void* const at = ::mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED) throw std::bad_alloc();
        return at;
    }
    T* value_;
};

/// Runs the world's ranks: processes if the transport has them, otherwise threads.
template <class Body, class T = Transport>
void run(int ranks, Body body, const unisono::RunOptions& options = {}) {
    if constexpr (of_any_kind) {
        unisono::run<Transport>(any_on_processes ? "shared_memory" : "in_process", ranks, body, options);
    } else if constexpr (requires { T::run_ranks(ranks, body, options); }) {
        T::run_ranks(ranks, body, options);
    } else if constexpr (unisono::process_transport<T> && !on_processes) {
        unisono::detail::check_run(ranks, options);
        unisono::detail::run_world<T>(std::make_shared<typename T::World>(ranks), body, options);
    } else {
        unisono::run<T>(ranks, body, options);
    }
}

} // namespace test

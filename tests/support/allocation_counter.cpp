#include "support/allocation_counter.hpp"

#include <atomic>
#include <cstdlib>
#include <malloc.h>
#include <new>

namespace {

// Constant-initialised, because operator new is called before any constructor of ours runs.
constinit std::atomic<std::size_t> process_count{0};
constinit thread_local std::size_t thread_count = 0, thread_limit = 0;
constinit std::atomic<std::size_t> live_bytes{0}, peak_bytes{0};

void* noted(void* memory) noexcept {
    const std::size_t bytes = malloc_usable_size(memory); // 0 for nullptr
    const std::size_t live = live_bytes.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    std::size_t peak = peak_bytes.load(std::memory_order_relaxed);
    while (peak < live && !peak_bytes.compare_exchange_weak(peak, live, std::memory_order_relaxed)) {
    }
    return memory;
}

void give_back(void* memory) noexcept {
    live_bytes.fetch_sub(malloc_usable_size(memory), std::memory_order_relaxed);
    std::free(memory);
}

void* count_and_allocate(std::size_t bytes, std::size_t alignment) noexcept {
    process_count.fetch_add(1, std::memory_order_relaxed);
    ++thread_count;
    if (bytes == 0) bytes = 1;
    if (thread_limit != 0 && bytes > thread_limit) return nullptr;
    if (alignment <= alignof(std::max_align_t)) return noted(std::malloc(bytes));
    return noted(std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment));
}

void* allocate_or_throw(std::size_t bytes, std::size_t alignment) {
    if (void* memory = count_and_allocate(bytes, alignment)) return memory;
    throw std::bad_alloc{};
}

} // namespace

namespace unisono_test {

std::size_t allocations_of_process() noexcept { return process_count.load(std::memory_order_relaxed); }
std::size_t allocations_of_thread() noexcept { return thread_count; }
void refuse_above(std::size_t bytes) noexcept { thread_limit = bytes; }
std::size_t live_bytes_of_process() noexcept { return live_bytes.load(std::memory_order_relaxed); }
std::size_t peak_bytes_of_process() noexcept { return peak_bytes.load(std::memory_order_relaxed); }
void forget_peak() noexcept { peak_bytes.store(live_bytes.load(std::memory_order_relaxed), std::memory_order_relaxed); }

} // namespace unisono_test

using std::align_val_t;
using std::nothrow_t;
using std::size_t;

void* operator new(size_t n) { return allocate_or_throw(n, 1); }
void* operator new[](size_t n) { return allocate_or_throw(n, 1); }
void* operator new(size_t n, align_val_t a) { return allocate_or_throw(n, static_cast<size_t>(a)); }
void* operator new[](size_t n, align_val_t a) { return allocate_or_throw(n, static_cast<size_t>(a)); }
void* operator new(size_t n, const nothrow_t&) noexcept { return count_and_allocate(n, 1); }
void* operator new[](size_t n, const nothrow_t&) noexcept { return count_and_allocate(n, 1); }
void* operator new(size_t n, align_val_t a, const nothrow_t&) noexcept {
    return count_and_allocate(n, static_cast<size_t>(a));
}
void* operator new[](size_t n, align_val_t a, const nothrow_t&) noexcept {
    return count_and_allocate(n, static_cast<size_t>(a));
}

void operator delete(void* p) noexcept { give_back(p); }
void operator delete[](void* p) noexcept { give_back(p); }
void operator delete(void* p, size_t) noexcept { give_back(p); }
void operator delete[](void* p, size_t) noexcept { give_back(p); }
void operator delete(void* p, align_val_t) noexcept { give_back(p); }
void operator delete[](void* p, align_val_t) noexcept { give_back(p); }
void operator delete(void* p, size_t, align_val_t) noexcept { give_back(p); }
void operator delete[](void* p, size_t, align_val_t) noexcept { give_back(p); }
void operator delete(void* p, const nothrow_t&) noexcept { give_back(p); }
void operator delete[](void* p, const nothrow_t&) noexcept { give_back(p); }
void operator delete(void* p, align_val_t, const nothrow_t&) noexcept { give_back(p); }
void operator delete[](void* p, align_val_t, const nothrow_t&) noexcept { give_back(p); }

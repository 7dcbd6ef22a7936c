// How much of the heap is in use.
#pragma once

#include <cstddef>
#include <malloc.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define UNISONO_TEST_HAS_SANITIZED_HEAP 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define UNISONO_TEST_HAS_SANITIZED_HEAP 1
#endif
#endif
#if defined(UNISONO_TEST_HAS_SANITIZED_HEAP)
extern "C" std::size_t __sanitizer_get_current_allocated_bytes();
#endif

namespace test {

/// Bytes of the heap that are in use. Sanitizers have heaps of their own, of which mallinfo2 knows nothing.
inline std::size_t heap_bytes() {
#if defined(UNISONO_TEST_HAS_SANITIZED_HEAP)
    return __sanitizer_get_current_allocated_bytes();
#else
    const struct mallinfo2 found = ::mallinfo2();
    return found.uordblks + found.hblkhd;
#endif
}

} // namespace test

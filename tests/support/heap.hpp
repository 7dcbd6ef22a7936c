// How much of the heap is in use.
#pragma once

#include "sanitizers.hpp"

#include <cstddef>
#include <malloc.h>

#if defined(UNISONO_TEST_SANITIZED)
extern "C" std::size_t __sanitizer_get_current_allocated_bytes();
#endif

namespace test {

/// Bytes of the heap that are in use. A sanitizer has a heap of its own. There mallinfo2 sees
/// nothing, and two threads whose calls of it are the first use of glibc's heap crash in it.
inline std::size_t heap_bytes() {
#if defined(UNISONO_TEST_SANITIZED)
    return __sanitizer_get_current_allocated_bytes();
#else
    const struct mallinfo2 found = ::mallinfo2();
    return found.uordblks + found.hblkhd;
#endif
}

} // namespace test

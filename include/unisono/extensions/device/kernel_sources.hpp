#pragma once

/// \file
/// A program has its kernels for a CUDA stream from the library unisono::devices, or from the
/// headers: both define the same templates, and the linker keeps one of them by chance. Each source
/// leaves a mark of its kind, and the first kernel of a program with both marks is refused.

#include "unisono/core/error.hpp"

extern "C" {
// The address is null where no source defines it.
__attribute__((weak)) extern char unisono_kernels_of_library;
__attribute__((weak)) extern char unisono_kernels_of_headers;
}

/// The mark of a source: `library` or `headers`.
#define UNISONO_KERNELS_ARE_OF(kind)                          \
    extern "C" {                                              \
    __attribute__((weak)) char unisono_kernels_of_##kind = 1; \
    }

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// \throws error refused: the program has both marks
inline void check_kernel_sources() {
    if (&unisono_kernels_of_library == nullptr || &unisono_kernels_of_headers == nullptr) [[likely]]
        return;
    throw error(ErrorCode::refused,
                "this program has sources with kernels of the library unisono::devices and sources with kernels of "
                "the headers, which nvcc compiles: define UNISONO_DEVICES for all of them (linking the CMake target "
                "unisono::devices does it), or for none");
}

} // namespace detail
UNISONO_NAMESPACE_END

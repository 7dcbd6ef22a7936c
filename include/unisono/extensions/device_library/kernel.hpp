#pragma once

/// \file
/// The border between a program and the library unisono::devices: a kernel is a function that is
/// declared here for every compiler, and that nvcc compiles in the library (src/devices).

#include "unisono/core/config.hpp"
#include "unisono/core/version.hpp"

#include <cstddef>
#include <cstdint>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// A part of each symbol, so that a library of another version does not link.
template <int Major, int Minor, int Patch>
struct DevicesVersion;
using ThisDevicesVersion = DevicesVersion<UNISONO_VERSION_MAJOR, UNISONO_VERSION_MINOR, UNISONO_VERSION_PATCH>;

/// A function of ThrustArithmetic with arguments of these types. Enqueues on `stream`, a
/// cudaStream_t. \throws error refused: CUDA's errors
///
/// Undefined? Link to the CMake target unisono::devices, built from this version of Unisono.
template <class Version, class Verb, class... Arguments>
struct KernelOfUnisonoDevices {
    static void run(void* stream, Arguments... arguments);
};

/// The names of ThrustArithmetic's functions.
namespace verb {

#define UNISONO_DEVICE_VERB(name)                                 \
    struct name {                                                 \
        template <class On, class... Arguments>                   \
        static void run(const On& on, Arguments&&... arguments) { \
            on.name(arguments...);                                \
        }                                                         \
    };
UNISONO_DEVICE_VERB(apply)
UNISONO_DEVICE_VERB(cast)
UNISONO_DEVICE_VERB(scale)
UNISONO_DEVICE_VERB(divide)
UNISONO_DEVICE_VERB(accumulate)
UNISONO_DEVICE_VERB(accumulate_first)
UNISONO_DEVICE_VERB(combine)
UNISONO_DEVICE_VERB(combine_on_grid)
UNISONO_DEVICE_VERB(numbers_of)
UNISONO_DEVICE_VERB(note_magnitudes)
UNISONO_DEVICE_VERB(note_squares)
UNISONO_DEVICE_VERB(note_largest)
UNISONO_DEVICE_VERB(from_grid_noting)
UNISONO_DEVICE_VERB(fill)
UNISONO_DEVICE_VERB(copy)
#undef UNISONO_DEVICE_VERB

template <bool Add>
struct to_grid_noting {
    template <class On, class... Arguments>
    static void run(const On& on, Arguments&&... arguments) {
        on.template to_grid_noting<Add>(arguments...);
    }
};
template <bool Add>
struct note_images {
    template <class On, class... Arguments>
    static void run(const On& on, Arguments&&... arguments) {
        on.template note_images<Add>(arguments...);
    }
};

} // namespace verb
} // namespace detail
UNISONO_NAMESPACE_END

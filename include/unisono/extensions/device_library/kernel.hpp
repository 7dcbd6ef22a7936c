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
/// cudaStream_t; a function that returns a number waits for it.
///
/// Undefined? Link to the CMake target unisono::devices, built from this version of Unisono.
template <class Version, class Verb, class... Arguments>
struct KernelOfUnisonoDevices {
    static typename Verb::Result run(void* stream, Arguments... arguments);
};

/// The names of ThrustArithmetic's functions.
namespace verb {

#define UNISONO_DEVICE_VERB(name, Returned)                         \
    struct name {                                                   \
        using Result = Returned;                                    \
        template <class On, class... Arguments>                     \
        static Result run(const On& on, Arguments&&... arguments) { \
            return on.name(arguments...);                           \
        }                                                           \
    };
UNISONO_DEVICE_VERB(apply, void)
UNISONO_DEVICE_VERB(cast, void)
UNISONO_DEVICE_VERB(scale, void)
UNISONO_DEVICE_VERB(divide, void)
UNISONO_DEVICE_VERB(accumulate, void)
UNISONO_DEVICE_VERB(accumulate_first, void)
UNISONO_DEVICE_VERB(combine, void)
UNISONO_DEVICE_VERB(combine_on_grid, void)
UNISONO_DEVICE_VERB(first_non_finite, std::size_t)
UNISONO_DEVICE_VERB(add_squares, void)
UNISONO_DEVICE_VERB(sum_of_squares, double)
UNISONO_DEVICE_VERB(needed_exponent, std::int32_t)
UNISONO_DEVICE_VERB(to_grid, std::int32_t)
UNISONO_DEVICE_VERB(add_to_grid, std::int32_t)
UNISONO_DEVICE_VERB(from_grid, std::size_t)
UNISONO_DEVICE_VERB(numbers_of, void)
UNISONO_DEVICE_VERB(note_magnitudes, void)
UNISONO_DEVICE_VERB(note_squares, void)
UNISONO_DEVICE_VERB(fill, void)
UNISONO_DEVICE_VERB(copy, void)
#undef UNISONO_DEVICE_VERB

template <bool Add>
struct note_images {
    using Result = void;
    template <class On, class... Arguments>
    static void run(const On& on, Arguments&&... arguments) {
        on.template note_images<Add>(arguments...);
    }
};

} // namespace verb
} // namespace detail
UNISONO_NAMESPACE_END

#pragma once

/// \file
/// Access to a trainer's memory for other rooms: host memory directly, device memory through
/// copies.

#include "unisono/core/device_span.hpp"
#include "unisono/model/model.hpp"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// Values that the host can read.
struct StateMemory {
    const void* data = nullptr;
    std::shared_ptr<const void> owner = {}; ///< owner of a copy; null for the trainer's own memory
};

template <class T>
StateMemory copy_of(std::span<const T> values) {
    const auto copy = std::make_shared<std::vector<T>>(values.begin(), values.end());
    return {copy->data(), copy};
}

template <class Trainer, class T>
StateMemory memory_of(const Trainer&, std::span<T> values) {
    return {values.data(), {}};
}
/// Copies the values to the host. Waits for the device.
template <class Trainer, class T>
StateMemory memory_of(const Trainer& trainer, DeviceSpan<T> values) {
    using E = std::remove_const_t<T>;
    StateMemory memory;
    trainer.state().read(values.data(), values.size(), [&](std::span<const E> found) { memory = copy_of(found); });
    return memory;
}
/// The values that `visit_parameters` shows, valid after its call as well.
template <class Trainer, class T>
StateMemory memory_of_visited(const Trainer& trainer, std::span<const T> values) {
    if constexpr (trained_on_device<std::remove_reference_t<decltype(trainer.trained())>>) return copy_of(values);
    else return {values.data(), {}};
}

template <class Trainer, class T>
void write_values(Trainer&, std::span<T> to, const T* from) {
    std::copy_n(from, to.size(), to.data());
}
template <class Trainer, class T>
void write_values(Trainer& trainer, DeviceSpan<T> to, const T* from) {
    trainer.state().kernels().write(to.data(), std::span<const T>(from, to.size()));
}

} // namespace detail
UNISONO_NAMESPACE_END

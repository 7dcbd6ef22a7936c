// Kernels of other policies, and those that only move bits: see kernels.hpp.
#include "kernels.hpp"

#include "unisono/extensions/compression/cast.hpp"
#include "unisono/extensions/compression/left_over.hpp"
#include "unisono/extensions/device/master_weights.hpp"
#include "unisono/trainer/step/grid_sums.hpp"
#include "unisono/update/averaging.hpp"

UNISONO_NAMESPACE_BEGIN
namespace detail {

namespace {
template <class T>
void have_bits(KernelList& all) {
    all.have<verb::fill, std::span<T>, T>();
    all.have<verb::copy, std::span<T>, std::span<const T>>();
}
} // namespace

void kernels_of_policies() {
    KernelList all;
    all.have_all(OthersOfDevices());
    have_bits<std::uint8_t>(all), have_bits<std::uint16_t>(all);
    have_bits<std::uint32_t>(all), have_bits<std::uint64_t>(all);
}

} // namespace detail
UNISONO_NAMESPACE_END

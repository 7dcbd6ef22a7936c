// Kernels of the built-in operations on all types of elements: see kernels.hpp.
#include "kernels.hpp"

UNISONO_NAMESPACE_BEGIN
namespace detail {

namespace {
template <class T, class... Op>
void have_operations(KernelList& all) {
    (all.have<verb::combine, Op, std::span<const T* const>, std::span<T* const>, std::size_t>(), ...);
}
template <class... T>
void have_elements(KernelList& all) {
    (have_operations<T, Sum, Product, Min, Max>(all), ...);
}
} // namespace

void kernels_of_sums() {
    KernelList all;
    have_elements<float, double, bfloat16, float16, std::uint8_t, std::int32_t, std::int64_t, std::uint32_t,
                  std::uint64_t>(all);
}

} // namespace detail
UNISONO_NAMESPACE_END

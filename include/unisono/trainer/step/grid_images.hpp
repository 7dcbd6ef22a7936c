#pragma once

/// \file
/// The loops of sums on a grid: gradients to integers (images), sums of images to numbers. Those of
/// devices are in extensions/device/kernels.hpp.

#include "unisono/arithmetic/narrow_grid.hpp"
#include "unisono/trainer/kernels.hpp"
#include "unisono/trainer/step/grid_range.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

UNISONO_NAMESPACE_BEGIN
namespace detail {

UNISONO_NO_CONTRACTION_BEGIN

/// If the grid is too fine, the addition wraps around; all ranks detect that later.
template <class Integer>
struct AddImage {
    UNISONO_INLINE void operator()(Integer& sum, const Integer& one) const {
        using Bits = std::make_unsigned_t<Integer>;
        sum = static_cast<Integer>(static_cast<Bits>(static_cast<Bits>(sum) + static_cast<Bits>(one)));
    }
};

UNISONO_NO_CONTRACTION_END

template <class T, class Integer>
class ImageKernels {
public:
    ImageKernels() = default;
    ImageKernels(const ImageKernels&) = delete;
    ImageKernels& operator=(const ImageKernels&) = delete;
    virtual ~ImageKernels() = default;

    /// Starts an update.
    virtual void begin() {}
    /// images[i] = weight * from[i] on the parameter's grid; `adds`: adds it to images[i]. Sets
    /// `from` to zero. Tells the grids which exponent was needed; a device does so in `tell`.
    virtual void image(bool adds, std::size_t parameter, Integer* images, T* from, std::size_t count,
                       double weight) = 0;
    /// Tells the grids what they do not know yet. Waits for the device.
    virtual void tell() {}
    virtual void numbers(T* to, const Integer* images, std::size_t count, std::int32_t exponent) const = 0;
    virtual void add(Integer* sum, const Integer* one, std::size_t count) const = 0;
    virtual void copy(Integer* to, const Integer* from, std::size_t count) const = 0;
    [[nodiscard]] virtual std::size_t bytes() const { return 0; }
};

template <class T, class Integer>
class HostImages final : public ImageKernels<T, Integer> {
public:
    explicit HostImages(GridRange& grids) : grids_(&grids) {}

    void image(bool adds, std::size_t parameter, Integer* images, T* from, std::size_t count, double weight) override {
        constexpr std::size_t chunk = 16384 / sizeof(T); // stays in the first-level cache
        const InstructionSet set = best_instruction_set();
        const std::int32_t exponent = grids_->stretches()[parameter].exponent;
        double largest = 0;
        for (std::size_t at = 0; at < count; at += chunk) {
            const std::size_t n = std::min(chunk, count - at);
            const double found = adds ? image_on<T, true>(set, images + at, from + at, n, weight, exponent)
                                      : image_on<T, false>(set, images + at, from + at, n, weight, exponent);
            largest = found > largest ? found : largest;
            HostArithmetic::zero(std::span<T>(from + at, n));
        }
        grids_->need(parameter, needed_by(largest, weight));
    }
    void numbers(T* to, const Integer* images, std::size_t count, std::int32_t exponent) const override {
        from_image_on<T>(best_instruction_set(), to, images, count, exponent);
    }
    void add(Integer* sum, const Integer* one, std::size_t count) const override {
        apply(AddImage<Integer>{}, std::span<Integer>(sum, count), std::span<const Integer>(one, count));
    }
    void copy(Integer* to, const Integer* from, std::size_t count) const override { std::copy_n(from, count, to); }

private:
    GridRange* grids_;
};

template <class Integer, class T>
[[nodiscard]] ImageKernels<T, Integer>* images_for(const HostKernels<T>&, GridRange& grids) {
    return new HostImages<T, Integer>(grids);
}

} // namespace detail
UNISONO_NAMESPACE_END

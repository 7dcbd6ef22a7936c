#pragma once

/// \file
/// Converts gradients to integers on a grid, and sums of these integers back to numbers, on the
/// host and on devices.

#include "unisono/arithmetic/narrow_grid.hpp"
#include "unisono/trainer/place.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// Calls need(parameter, exponent) with the exponent that each parameter needed. The host calls it
/// at once; a device calls it in `tell`.
template <class Place, class T, class Integer>
class GridImageKernels {
public:
    GridImageKernels(const Place&, std::size_t) {}

    void begin() {}
    /// images[i] = weight * from[i] on the grid with this exponent, or adds it to images[i]. Sets
    /// `from` to zero.
    template <bool Add, class Need>
    void image(std::size_t parameter, Integer* images, T* from, std::size_t count, double weight, std::int32_t exponent,
               Need&& need) {
        constexpr std::size_t chunk = Place::template chunk<T>;
        const InstructionSet set = best_instruction_set();
        double largest = 0;
        for (std::size_t at = 0; at < count; at += chunk) {
            const std::size_t n = std::min(chunk, count - at);
            const double found = image_on<T, Add>(set, images + at, from + at, n, weight, exponent);
            largest = found > largest ? found : largest;
            HostArithmetic::zero(std::span<T>(from + at, n));
        }
        need(parameter, needed_by(largest, weight));
    }
    template <class Need>
    void tell(Need&&) {}
    void numbers(T* to, const Integer* images, std::size_t count, std::int32_t exponent) const {
        from_image_on<T>(best_instruction_set(), to, images, count, exponent);
    }
    [[nodiscard]] static constexpr std::size_t bytes() { return 0; }
};

/// The greatest magnitude of each parameter stays on the device until `tell` reads it, or until the
/// weight changes.
template <class Place, class T, class Integer>
    requires(Place::on_device)
class GridImageKernels<Place, T, Integer> {
public:
    GridImageKernels(const Place& place, std::size_t parameters)
        : place_(&place), largest_(place.template allocate<std::uint64_t>(parameters)) {}

    void begin() {
        noted_ = false;
        zero();
    }
    template <bool Add, class Need>
    void image(std::size_t parameter, Integer* images, T* from, std::size_t count, double weight, std::int32_t exponent,
               Need&& need) {
        if (noted_ && weight != weight_) {
            tell(need);
            zero();
        }
        noted_ = true;
        weight_ = weight;
        const auto& on = place_->arithmetic();
        on.template note_images<Add>(std::span<Integer>(images, count), std::span<const T>(from, count), weight,
                                     Grid{exponent}, largest_.data() + parameter);
        on.zero(std::span<T>(from, count));
    }
    /// Waits for the device.
    template <class Need>
    void tell(Need&& need) {
        if (!noted_) return;
        noted_ = false;
        place_->read(largest_.data(), largest_.size(), [&](std::span<const std::uint64_t> all) {
            for (std::size_t p = 0; p < all.size(); ++p)
                need(p, place_->arithmetic().template needed_by_bits<T>(all[p], weight_));
        });
    }
    void numbers(T* to, const Integer* images, std::size_t count, std::int32_t exponent) const {
        place_->arithmetic().numbers_of(std::span<T>(to, count), std::span<const Integer>(images, count),
                                        Grid{exponent});
    }
    [[nodiscard]] std::size_t bytes() const { return largest_.size() * sizeof(std::uint64_t); }

private:
    void zero() { place_->arithmetic().zero(std::span<std::uint64_t>(largest_.data(), largest_.size())); }

    const Place* place_;
    typename Place::template Array<std::uint64_t> largest_;
    bool noted_ = false;
    double weight_ = 1; ///< the weight of all gradients that were noted
};

} // namespace detail
UNISONO_NAMESPACE_END

#pragma once

/// \file
/// A trainer's memory and kernels on a rank's device (see trainer/kernels.hpp). Gradients, 16-bit
/// copies and optimizer state never leave the device. Kernels are enqueued on the model's stream.
/// Sums over ranks are enqueued on the transport's stream, after the work enqueued so far on the
/// model's stream, so that later kernels do not wait for the sums. The host waits for the device
/// where it needs a number: once per update for the guard's findings, once for a norm, and for each
/// sum.

#include "unisono/arithmetic/square_sum.hpp"
#include "unisono/arithmetic/stream_kernel.hpp"
#include "unisono/extensions/device/fused_update.hpp"
#include "unisono/extensions/device/on_device.hpp"
#include "unisono/trainer/agreement.hpp"
#include "unisono/trainer/kernels.hpp"
#include "unisono/trainer/step/grid_sums.hpp"
#include "unisono/trainer/summation.hpp"

#include <cstdint>
#include <limits>
#include <memory>
#include <string_view>
#include <type_traits>
#include <vector>

UNISONO_NAMESPACE_BEGIN

/// An OptimizerState in device memory, to which it refers. `T` is const for one that can only be
/// read.
template <class T>
    requires optimizer_element<std::remove_const_t<T>>
class DeviceOptimizerState {
    using Arrays = OptimizerState<std::remove_const_t<T>>;
    using State = std::conditional_t<std::is_const_v<T>, const Arrays, Arrays>;

public:
    explicit DeviceOptimizerState(State& state) : state_(&state) {}

    [[nodiscard]] std::size_t size() const { return state_->size(); }
    [[nodiscard]] std::string_view name(std::size_t i) const { return state_->name(i); }
    [[nodiscard]] DeviceSpan<T> array(std::size_t i) const { return {state_->array(i).data(), state_->count()}; }
    /// The arrays are addresses of the device.
    [[nodiscard]] State& referred() const { return *state_; }

private:
    State* state_;
};

namespace detail {

/// `Low`: the model's 16-bit copy of its parameters (master_weights.hpp). It is always current.
template <class T, streaming_transport Transport, class Low>
class DeviceKernels<T, Group<Transport>, Low> final : public Kernels<T> {
public:
    using Stream = std::remove_cvref_t<decltype(std::declval<Transport&>().stream())>;
    static constexpr bool on_device = true;
    static constexpr bool has_low = !std::is_void_v<Low>;

    template <class Model>
    DeviceKernels(Group<Transport>& world, Model& model)
        : Kernels<T>(MemorySpace::device, std::numeric_limits<std::size_t>::max(), has_low), world_(&world),
          stream_(model.stream()), on_(stream_), inspected_(this->template allocate<std::uint64_t>(2)) {
        if constexpr (has_low) {
            low_weights_ = &model.low_weights();
            model.refresh();
            low_weights_->keep();
        }
    }
    ~DeviceKernels() override {
        if constexpr (has_low) low_weights_->let_go();
    }

    [[nodiscard]] const StreamArithmetic<Stream>& arithmetic() const { return on_; }

    [[nodiscard]] OptimizerState<T> state(const StateArrays& arrays, std::size_t count) const override {
        OptimizerState<T> made(arrays, count, [&](std::size_t bytes) { return allocate_bytes(bytes, false); });
        for (std::size_t i = 0; i < made.size(); ++i) on_.fill(made.array(i), static_cast<T>(arrays[i].initial));
        return made;
    }
    [[nodiscard]] static DeviceOptimizerState<T> shown(OptimizerState<T>& state) {
        return DeviceOptimizerState<T>(state);
    }
    [[nodiscard]] static DeviceOptimizerState<const T> shown(const OptimizerState<T>& state) {
        return DeviceOptimizerState<const T>(state);
    }
    [[nodiscard]] bool is_shared(const T*, std::size_t) const override { return true; }
    void order() const override { world_->endpoint().wait_for(stream_); }
    void wait() const override { world_->endpoint().settle(stream_); }

    void copy(T* to, const T* from, std::size_t count) const override {
        if (count != 0) on_.copy(std::span<T>(to, count), std::span<const T>(from, count));
    }
    void scale(T* values, std::size_t count, double factor) const override {
        on_.scale(std::span<T>(values, count), factor);
    }
    void add(T* sum, T* from, std::size_t count, double weight, bool first, bool zeroes) const override {
        if (count == 0) return;
        const std::span<const T> one(from, count);
        if (first) on_.accumulate_first(std::span<T>(sum, count), one, weight);
        else on_.accumulate(std::span<T>(sum, count), one, weight);
        if (zeroes) on_.zero(std::span<T>(from, count));
    }

    void begin_inspection() const override { on_.fill(std::span(inspected_.data(), 2), nothing); }
    Findings look(const T* values, std::size_t count, std::size_t flat, int large) const override {
        return inspect(FiniteGuard{}, values, count, flat, large);
    }
    /// For guards that look for values that are not finite. `findings` returns the result later.
    template <class Guard>
    Findings inspect(const Guard&, const T* values, std::size_t count, std::size_t flat, int large) const {
        on_.note_magnitudes(std::span<const T>(values, count), flat, large, inspected_.data());
        return {};
    }
    [[nodiscard]] Findings findings() const override {
        Findings found;
        read(inspected_.data(), 2, [&](std::span<const std::uint64_t> noted) {
            if (noted[0] != nothing) found.offender = static_cast<std::size_t>(noted[0]);
            found.large = noted[1] != nothing;
        });
        return found;
    }

    /// Updates the parameters and their 16-bit copy in one pass.
    template <class Optimizer, class Clipping>
    void update(const Optimizer& optimizer, const Clipping& clipping, const OptimizerSlice<T>& state, T* parameters,
                T* gradients, const OptimizerStep& step) const {
        if constexpr (has_low) {
            low_weights_->visit(parameters, state.count, [&](std::size_t first, std::size_t n, auto* low) {
                OptimizerSlice<T> part{.arrays = state.arrays, .count = n};
                for (T*& array : part.arrays) array += array == nullptr ? 0 : first;
                update_on(on_, optimizer, part, std::span<T>(parameters + first, n),
                          std::span<const T>(gradients + first, n), step, clipping, std::span(low, n));
            });
        } else {
            update_on(on_, optimizer, state, std::span<T>(parameters, state.count),
                      std::span<const T>(gradients, state.count), step, clipping);
        }
    }
    template <class Optimizer>
    void update_other(const Optimizer& optimizer, const OptimizerSlice<T>& state, T* values, const T* gradients,
                      const OptimizerStep& step) const {
        update_on(on_, optimizer, state, std::span<T>(values, state.count), std::span<const T>(gradients, state.count),
                  step);
    }
    void write_low_weights([[maybe_unused]] const T* at, [[maybe_unused]] std::size_t count) const override {
        if constexpr (has_low)
            low_weights_->visit(at, count, [&](std::size_t first, std::size_t n, auto* low) {
                on_.accumulate_first(std::span(low, n), std::span<const T>(at + first, n), 1.0);
            });
    }

    template <class E>
    void read_into(E* to, const E* at, std::size_t count) const {
        world_->endpoint().copy_to_host(to, at, count * sizeof(E), stream_);
    }
    template <class E, class Visit>
    void read(const E* at, std::size_t count, Visit&& visit) const {
        std::vector<E> values(count);
        read_into(values.data(), at, count);
        visit(std::span<const E>(values));
    }
    template <class E>
    void write(E* at, std::span<const E> values) const {
        world_->endpoint().copy_to_device(at, values.data(), values.size_bytes(), stream_);
        if constexpr (has_low && std::is_same_v<E, T>)
            if (low_weights_->has(at)) write_low_weights(at, values.size());
    }

private:
    static constexpr std::uint64_t nothing = std::numeric_limits<std::uint64_t>::max();

    [[nodiscard]] std::shared_ptr<std::byte> allocate_bytes(std::size_t bytes, bool own) const override {
        std::shared_ptr<std::byte> made = world_->endpoint().allocate_on_device(bytes);
        if (own && bytes != 0) zero_bytes(made.get(), bytes);
        return made;
    }
    void zero_bytes(void* at, std::size_t bytes) const override {
        const auto fill = [&]<class E>(E zero) {
            on_.fill(std::span<E>(static_cast<E*>(at), bytes / sizeof(E)), zero);
        };
        if ((reinterpret_cast<std::uintptr_t>(at) | bytes) % sizeof(float) == 0) fill(0.0f);
        else fill(bfloat16{});
    }

    Group<Transport>* world_;
    Stream stream_;
    StreamArithmetic<Stream> on_;
    Low* low_weights_ = nullptr;
    /// The lowest indices in flat order of a value that is not finite, and of one that is large.
    Array<std::uint64_t> inspected_;
};

/// Squares of elements on a device. `Squares`: the policy's, to which `finish` adds them, so that
/// the host waits once. Those of each call are on a grid of its own, as they need; with `exact`,
/// all are on one.
template <class T, class Computes, class Squares>
class DeviceSquares final : public NormSquares<T> {
public:
    explicit DeviceSquares(const Computes& kernels) : kernels_(&kernels) {}

    void begin(std::int32_t above, std::size_t most) override {
        squares_.begin(above, most);
        noted_ = 0;
        if (words_.empty()) words_ = kernels_->template allocate<std::uint64_t>(most * NotedSquares::words);
        kernels_->zero(words_.data(), words_.size());
    }
    void add(std::span<const T> x) override {
        if (x.empty()) return;
        if constexpr (exact) {
            kernels_->arithmetic().note_squares(x, words_.data(), squares_.exact().exponent());
            noted_ = 1;
        } else {
            kernels_->arithmetic().note_squares(x, words_.data() + NotedSquares::words * noted_++);
        }
    }
    void finish() override {
        if (noted_ == 0) return;
        kernels_->read(words_.data(), noted_ * NotedSquares::words, [&](std::span<const std::uint64_t> all) {
            for (; !all.empty(); all = all.subspan(NotedSquares::words)) {
                const NotedSquares one{all[0], {all[1], all[2], all[3]}};
                if constexpr (exact) {
                    squares_.exact().template add<T>(one);
                } else {
                    SquareSum sum(SquareSum::needed_of<T>(one));
                    sum.template add<T>(one);
                    squares_.add_sum(sum.value());
                }
            }
        });
    }
    void agree(GroupCore& world) override { squares_.agree(world); }
    [[nodiscard]] double value() const override { return squares_.value(); }

private:
    static constexpr bool exact = requires(Squares& squares) { squares.exact(); };

    const Computes* kernels_;
    Squares squares_;
    Array<std::uint64_t> words_; ///< NotedSquares of each call of `add`
    std::size_t noted_ = 0;
};
template <class Squares, class T, class World, class Low>
[[nodiscard]] NormSquares<T>* squares_for(const DeviceKernels<T, World, Low>& kernels) {
    return new DeviceSquares<T, DeviceKernels<T, World, Low>, Squares>(kernels);
}

/// The greatest magnitude of each parameter stays on the device until `tell` reads it, or until the
/// weight changes.
template <class T, class Integer, class Computes>
class DeviceImages final : public ImageKernels<T, Integer> {
public:
    DeviceImages(const Computes& kernels, GridRange& grids)
        : kernels_(&kernels), grids_(&grids),
          largest_(kernels.template allocate<std::uint64_t>(grids.exponents().size())) {}

    void begin() override {
        noted_ = false;
        kernels_->zero(largest_.data(), largest_.size());
    }
    void image(bool adds, std::size_t parameter, Integer* images, T* from, std::size_t count, double weight) override {
        if (noted_ && weight != weight_) {
            tell();
            kernels_->zero(largest_.data(), largest_.size());
        }
        noted_ = true;
        weight_ = weight;
        const std::span<Integer> to(images, count);
        const std::span<const T> gradient(from, count);
        const Grid grid{grids_->stretches()[parameter].exponent};
        std::uint64_t* const largest = largest_.data() + parameter;
        if (adds) on().template note_images<true>(to, gradient, weight, grid, largest);
        else on().template note_images<false>(to, gradient, weight, grid, largest);
        on().zero(std::span<T>(from, count));
    }
    void tell() override {
        if (!noted_) return;
        noted_ = false;
        kernels_->read(largest_.data(), largest_.size(), [&](std::span<const std::uint64_t> all) {
            for (std::size_t p = 0; p < all.size(); ++p)
                grids_->need(p, on().template needed_by_bits<T>(all[p], weight_));
        });
    }
    void numbers(T* to, const Integer* images, std::size_t count, std::int32_t exponent) const override {
        on().numbers_of(std::span<T>(to, count), std::span<const Integer>(images, count), Grid{exponent});
    }
    void add(Integer* sum, const Integer* one, std::size_t count) const override {
        on().apply(AddImage<Integer>{}, std::span<Integer>(sum, count), std::span<const Integer>(one, count));
    }
    void copy(Integer* to, const Integer* from, std::size_t count) const override {
        on().copy(std::span<Integer>(to, count), std::span<const Integer>(from, count));
    }
    [[nodiscard]] std::size_t bytes() const override { return largest_.size() * sizeof(std::uint64_t); }

private:
    [[nodiscard]] const auto& on() const { return kernels_->arithmetic(); }

    const Computes* kernels_;
    GridRange* grids_;
    Array<std::uint64_t> largest_;
    bool noted_ = false;
    double weight_ = 1; ///< the weight of all gradients that were noted
};
template <class Integer, class T, class World, class Low>
[[nodiscard]] ImageKernels<T, Integer>* images_for(const DeviceKernels<T, World, Low>& kernels, GridRange& grids) {
    return new DeviceImages<T, Integer, DeviceKernels<T, World, Low>>(kernels, grids);
}

/// Broadcasts rank 0's parameters on a device. Small ones are packed, since parameters that are
/// adjacent on one rank may not be on another.
template <class T, class World, class Low>
void broadcast_parameters(World& world, const FlatModel<T>& flat, const DeviceKernels<T, World, Low>& kernels) {
    if (world.size() == 1) return;
    const Layout& layout = flat.layout();
    const std::size_t most = std::min(flat.count(), bytes_together / sizeof(T));
    const Array<T> packed = kernels.template allocate_own<T>(layout.parameters() == 1 ? 0 : most);
    const auto copy = [&](const Slice& slice, bool pack) {
        flat.visit(slice, [&](const Stretch<T>& one) {
            T* const room = packed.data() + (one.flat - slice.first);
            kernels.copy(pack ? room : one.parameters, pack ? one.parameters : room, one.count);
        });
    };
    const auto size = [&](std::size_t p) { return layout.shapes()[p].count; };
    visit_together(layout.parameters(), most, size, [&](std::size_t begin, std::size_t end, std::size_t count) {
        const Slice slice{layout.start_of(begin), count};
        const bool together = end - begin > 1;
        if (together && world.rank() == 0) copy(slice, true);
        kernels.order();
        const auto send = [&](T* at) { broadcast(world, DeviceSpan<T>(at, count), 0); };
        if (together) send(packed.data());
        else flat.visit(slice, [&](const Stretch<T>& one) { send(one.parameters); });
        if (together && world.rank() != 0) copy(slice, false);
    });
    for (const Stretch<T>& one : flat.stretches()) kernels.write_low_weights(one.parameters, one.count);
    kernels.wait(); // the packed numbers are about to go
}

} // namespace detail
UNISONO_NAMESPACE_END

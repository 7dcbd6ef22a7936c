#pragma once

/// \file
/// A trainer's memory and kernels on a rank's device (see trainer/place.hpp). Gradients, 16-bit
/// copies and optimizer state never leave the device. Kernels are enqueued on the model's stream.
/// Sums over ranks are enqueued on the transport's stream, after the work enqueued so far on the
/// model's stream, so that later kernels do not wait for the sums. The host waits for the device
/// where it needs a number: once per update for the guard's findings, once for a norm, and for each
/// sum.

#include "unisono/arithmetic/square_sum.hpp"
#include "unisono/arithmetic/stream_arithmetic.hpp"
#include "unisono/extensions/device/fused_update.hpp"
#include "unisono/extensions/device/on_device.hpp"
#include "unisono/trainer/place.hpp"

#include <cstdint>
#include <limits>
#include <string_view>
#include <type_traits>
#include <vector>

UNISONO_NAMESPACE_BEGIN

/// An OptimizerState in device memory, one allocation per array.
template <optimizer_element T>
class DeviceOptimizerState {
public:
    DeviceOptimizerState() = default;
    /// `allocate(count)` returns memory; `fill(memory, value)` fills it.
    template <class Allocate, class Fill>
    DeviceOptimizerState(const StateArrays& arrays, std::size_t count, Allocate&& allocate, Fill&& fill)
        : arrays_(arrays), count_(count) {
        for (const StateArray& one : arrays) {
            memory_.push_back(allocate(count));
            fill(memory_.back().span(), static_cast<T>(one.initial));
        }
    }

    [[nodiscard]] std::size_t count() const { return count_; }
    [[nodiscard]] std::size_t size() const { return arrays_.size(); }
    [[nodiscard]] std::size_t bytes() const { return size() * count_ * sizeof(T); }
    [[nodiscard]] std::string_view name(std::size_t i) const { return arrays_[i].name; }
    [[nodiscard]] DeviceSpan<T> array(std::size_t i) const { return memory_[i].span(); }

    /// Elements [first, first + count) of every array.
    [[nodiscard]] OptimizerSlice<T> slice(std::size_t first, std::size_t count) const {
        if (first > count_ || count > count_ - first)
            refuse_input({"optimizer state of ", count_, " elements has no slice [", first, ", +", count, ")"});
        OptimizerSlice<T> part;
        part.count = count;
        for (std::size_t i = 0; i < size() && count != 0; ++i) part.arrays[i] = memory_[i].data() + first;
        return part;
    }

private:
    StateArrays arrays_;
    std::size_t count_ = 0;
    std::vector<DeviceMemory<T>> memory_;
};

namespace detail {

/// `Low`: the model's 16-bit copy of its parameters (low_weights.hpp). It is always current.
template <streaming_transport Transport, class Low>
class DevicePlace<Group<Transport>, Low> {
public:
    using Stream = std::remove_cvref_t<decltype(std::declval<Transport&>().stream())>;
    static constexpr bool on_device = true;
    static constexpr bool has_low_weights = Low::present;
    /// One kernel for each contiguous range.
    template <class T>
    static constexpr std::size_t chunk = std::numeric_limits<std::size_t>::max();
    template <class T>
    using Array = DeviceMemory<T>;
    template <class T>
    using OwnArray = DeviceMemory<T>;
    template <class T>
    using State = DeviceOptimizerState<T>;

    template <class Model>
    DevicePlace(Group<Transport>& world, Model& model)
        : world_(&world), stream_(model.stream()), on_(stream_), inspected_(allocate<std::uint64_t>(2)) {
        if constexpr (has_low_weights) {
            low_weights_ = &model.low_weights();
            model.refresh();
            low_weights_->keep();
        }
    }
    DevicePlace(const DevicePlace&) = delete;
    DevicePlace& operator=(const DevicePlace&) = delete;
    ~DevicePlace() {
        if constexpr (has_low_weights) low_weights_->let_go();
    }

    [[nodiscard]] const StreamArithmetic<Stream>& arithmetic() const { return on_; }
    template <class T>
    [[nodiscard]] DeviceMemory<T> allocate(std::size_t count) const {
        return allocate_on_device<T>(*world_, count);
    }
    template <class T>
    [[nodiscard]] DeviceMemory<T> allocate_own(std::size_t count) const {
        DeviceMemory<T> made = allocate<T>(count);
        on_.zero(std::span<T>(made.data(), count));
        return made;
    }
    template <class T>
    [[nodiscard]] DeviceOptimizerState<T> state(const StateArrays& arrays, std::size_t count) const {
        return {arrays, count, [&](std::size_t n) { return allocate<T>(n); },
                [&](DeviceSpan<T> all, T value) { on_.fill(std::span<T>(all.data(), all.size()), value); }};
    }
    template <class T>
    [[nodiscard]] static constexpr bool is_shared(const T*, std::size_t) {
        return true;
    }
    template <class T>
    void clear(T* at, std::size_t count) const {
        if (count != 0) on_.fill(std::span<T>(at, count), T{});
    }
    template <class T>
    static DeviceSpan<T> view(T* at, std::size_t count) {
        return {at, count};
    }
    void order() const { world_->endpoint().wait_for(stream_); }
    void settle() const { world_->endpoint().settle(stream_); }

    /// Updates the parameters and their 16-bit copy in one pass.
    template <class Optimizer, class Clipping, class T>
    void update(const Optimizer& optimizer, const Clipping& clipping, const OptimizerSlice<T>& state, T* parameters,
                T* gradients, const OptimizerStep& step) const {
        if constexpr (has_low_weights) {
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
    template <class Optimizer, class T>
    void update_other(const Optimizer& optimizer, const OptimizerSlice<T>& state, T* values, const T* gradients,
                      const OptimizerStep& step) const {
        update_on(on_, optimizer, state, std::span<T>(values, state.count), std::span<const T>(gradients, state.count),
                  step);
    }
    template <class T>
    void follow(const T* at, std::size_t count) const {
        if constexpr (has_low_weights)
            low_weights_->visit(at, count, [&](std::size_t first, std::size_t n, auto* low) {
                on_.accumulate_first(std::span(low, n), std::span<const T>(at + first, n), 1.0);
            });
    }

    template <class T, class Body>
    static void in_chunks(const T*, std::size_t count, Body&& body) {
        if (count != 0) body(std::size_t{0}, count);
    }

    /// Reads all sums at the end, so that the host waits once.
    template <class T, class Squares>
    class Measure {
    public:
        Measure(DevicePlace& place, Squares& squares) : place_(&place), squares_(&squares) {}

        void add(std::span<const T> x) {
            if (x.empty()) return;
            if (const SquareSum* const exact = squares_->exact()) {
                place_->on_.note_squares(x, place_->squares_.data(), exact->exponent());
                noted_ = 1;
            } else {
                place_->on_.note_squares(x, place_->squares_.data() + NotedSquares::words * noted_++);
            }
        }
        void finish() {
            if (noted_ == 0) return;
            const auto tell = [&](std::span<const std::uint64_t> all) {
                for (; !all.empty(); all = all.subspan(NotedSquares::words)) {
                    const NotedSquares one{all[0], {all[1], all[2], all[3]}};
                    if (SquareSum* const exact = squares_->exact()) {
                        exact->template add<T>(one);
                    } else {
                        SquareSum sum(SquareSum::needed_of<T>(one));
                        sum.template add<T>(one);
                        squares_->add(sum.value());
                    }
                }
            };
            place_->read(place_->squares_.data(), noted_ * NotedSquares::words, tell);
        }

    private:
        DevicePlace* place_;
        Squares* squares_;
        std::size_t noted_ = 0;
    };
    template <class T, class Squares>
    [[nodiscard]] Measure<T, Squares> measure(Squares& squares, std::size_t most) {
        if (squares_.empty()) squares_ = allocate<std::uint64_t>(most * NotedSquares::words);
        on_.zero(std::span(squares_.data(), squares_.size()));
        return {*this, squares};
    }

    void begin_inspection() const { on_.fill(std::span(inspected_.data(), 2), nothing); }
    /// For guards that look for values that are not finite. `findings` returns the result later.
    template <class Guard, class T, class Found>
    bool inspect(const Guard&, const T* gradients, std::size_t count, std::size_t flat, int large, Found&&) const {
        on_.note_magnitudes(std::span<const T>(gradients, count), flat, large, inspected_.data());
        return false; // `findings` tells
    }
    /// Waits for the device.
    [[nodiscard]] Findings findings() const {
        Findings found;
        read(inspected_.data(), 2, [&](std::span<const std::uint64_t> noted) {
            if (noted[0] != nothing) found.offender = static_cast<std::size_t>(noted[0]);
            found.large = noted[1] != nothing;
        });
        return found;
    }

    template <class T>
    void read_into(T* to, const T* at, std::size_t count) const {
        world_->endpoint().copy_to_host(to, at, count * sizeof(T), stream_);
    }
    template <class T, class Visit>
    void read(const T* at, std::size_t count, Visit&& visit) const {
        std::vector<T> values(count);
        read_into(values.data(), at, count);
        visit(std::span<const T>(values));
    }
    template <class T>
    void write(T* at, std::span<const T> values) const {
        world_->endpoint().copy_to_device(at, values.data(), values.size_bytes(), stream_);
        if constexpr (has_low_weights && std::is_same_v<T, float>)
            if (low_weights_->has(at)) follow(at, values.size());
    }

private:
    static constexpr std::uint64_t nothing = std::numeric_limits<std::uint64_t>::max();

    Group<Transport>* world_;
    Stream stream_;
    StreamArithmetic<Stream> on_;
    Low* low_weights_ = nullptr;
    DeviceMemory<std::uint64_t> squares_; ///< NotedSquares of each range whose norm is measured
    /// The lowest indices in flat order of a value that is not finite, and of one that is large.
    DeviceMemory<std::uint64_t> inspected_;
};

} // namespace detail
UNISONO_NAMESPACE_END

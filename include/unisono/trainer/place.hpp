#pragma once

/// \file
/// A trainer's *place* is the memory of its gradients, 16-bit copies and optimizer state, and the
/// processor that computes there: the host or a device. A trainer accesses elements only through
/// its place, so one source serves the host and devices (extensions/device/place.hpp).
///
/// A place has
/// - `arithmetic()`: kernels on its addresses (HostArithmetic, or a type with the same functions);
/// - `Array<T>` and `allocate<T>(n)`, `State<T>` (as OptimizerState) and `state<T>(arrays, n)`,
///   `chunk<T>`: elements per chunk;
/// - `OwnArray<T>` and `allocate_own<T>(n)`: zeroed memory that the transport need not see;
/// - `clear(at, n)`: sets elements to zero;
/// - `view(at, n)`: elements as reducers and collectives take them; `order()`: orders the work
///   enqueued so far before operations that start later;
/// - `in_chunks(array, n, body)`: calls body(at, n) for one chunk after another;
/// - `measure<T>(squares, most)`: returns an object that adds squares of elements to a summation's
///   `Squares`: call `add(x)` at most `most` times, and then `finish()`;
/// - `update(...)`: clips, and runs an optimizer; `update_other(...)` does so on memory that is not
///   a parameter of the model; `inspect(...)`: lets a guard look, and says whether an element is
///   not below a power of two; `findings()`: returns what `inspect` could not say at once;
/// - `follow(at, n)`: tells the place that code other than `update` has written these parameters,
///   so that the model's 16-bit copy of them, if it has one, is written;
/// - `read(at, n, visit)`: calls visit(std::span<const T>) with the values, on the host;
///   `settle()`: waits for the work of the place.

#include "unisono/arithmetic/host_arithmetic.hpp"
#include "unisono/arithmetic/scan.hpp"
#include "unisono/core/list.hpp"
#include "unisono/core/memory.hpp"
#include "unisono/core/standard.hpp"
#include "unisono/group/group_core.hpp"
#include "unisono/guard/guard.hpp"
#include "unisono/model/model.hpp"
#include "unisono/optimizer/optimizer.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The findings of `inspect` in a place.
struct Findings {
    std::size_t offender = no_offender; ///< in the flat order
    bool large = false;                 ///< an element was not below the power of two
};

/// Host memory, which the transport may map.
class HostPlace {
public:
    static constexpr bool on_device = false;
    static constexpr bool has_low_weights = false;
    /// Elements that stay in the first-level cache between passes.
    template <class T>
    static constexpr std::size_t chunk = 16384 / sizeof(T);
    template <class T>
    using Array = Memory<T>;
    template <class T>
    using OwnArray = List<T>;
    template <class T>
    using State = OptimizerState<T>;

    template <class Model>
    HostPlace(GroupCore& world, Model&) : world_(&world) {}

    static constexpr HostArithmetic arithmetic() { return {}; }
    template <class T>
    [[nodiscard]] Memory<T> allocate(std::size_t count) const {
        return world_->allocate<T>(count);
    }
    template <class T>
    [[nodiscard]] static List<T> allocate_own(std::size_t count) {
        return List<T>(count);
    }
    template <class T>
    [[nodiscard]] static OptimizerState<T> state(const StateArrays& arrays, std::size_t count) {
        return {arrays, count};
    }
    /// True if the transport moves these elements without copying them first.
    template <class T>
    [[nodiscard]] bool is_shared(const T* at, std::size_t count) const {
        return world_->is_shared(std::span<const T>(at, count));
    }
    template <class T>
    static void clear(T* at, std::size_t count) {
        if (count != 0) std::memset(static_cast<void*>(at), 0, count * sizeof(T)); // the number zero
    }
    template <class T>
    static std::span<T> view(T* at, std::size_t count) {
        return {at, count};
    }
    static void order() {}
    static void settle() {}

    template <class Optimizer, class Clipping, class T>
    static void update(const Optimizer& optimizer, const Clipping& clipping, const OptimizerSlice<T>& state,
                       T* parameters, T* gradients, const OptimizerStep& step) {
        const std::span<T> values(gradients, state.count);
        if constexpr (Clipping::changes_elements) clipping.clip(values, step.gradient_scale);
        optimizer.update(state, std::span<T>(parameters, state.count), std::span<const T>(values),
                         {step.learning_rate, step.number, Clipping::changes_elements ? 1 : step.gradient_scale});
    }

    template <class Optimizer, class T>
    static void update_other(const Optimizer& optimizer, const OptimizerSlice<T>& state, T* values, const T* gradients,
                             const OptimizerStep& step) {
        optimizer.update(state, std::span<T>(values, state.count), std::span<const T>(gradients, state.count), step);
    }

    /// Calls body(at, n) for chunks. All chunks but the first begin at a cache line of this array,
    /// and so usually at cache lines of other arrays as well: wide loads across lines would cost a
    /// fifth.
    template <class T, class Body>
    static void in_chunks(const T* array, std::size_t count, Body&& body) {
        const std::size_t past_line = reinterpret_cast<std::uintptr_t>(array) % 64 / sizeof(T);
        std::size_t n = count <= chunk<T> ? count : chunk<T> - past_line;
        for (std::size_t at = 0; at < count; at += n, n = std::min(chunk<T>, count - at)) body(at, n);
    }

    template <class T, class Squares>
    struct Measure {
        Squares* squares;
        void add(std::span<const T> x) const { squares->add(x); }
        static void finish() {}
    };
    template <class T, class Squares>
    static Measure<T, Squares> measure(Squares& squares, std::size_t) {
        return {&squares};
    }

    static void begin_inspection() {}
    /// Calls found(index) for the first value that the guard refuses. Returns true if a value is
    /// not below 2^large in magnitude. A guard that looks only for NaN and infinity is asked only
    /// in that case, so that there is one pass.
    template <class Guard, class T, class Found>
    static bool inspect(const Guard& guard, const T* gradients, std::size_t count, std::size_t, int large,
                        Found&& found) {
        const std::span<const T> values(gradients, count);
        const bool any = first_at_least(values, large) != npos;
        constexpr bool asked_always = !requires { requires Guard::only_finite; };
        if (asked_always || any) [[unlikely]] {
            const std::size_t index = guard.first_offender(values);
            if (index != no_offender) found(index);
        }
        return any;
    }
    static constexpr Findings findings() { return {}; } ///< empty: `inspect` has told everything

    template <class T>
    static constexpr void follow(const T*, std::size_t) {}

    template <class T, class Visit>
    static void read(const T* at, std::size_t count, Visit&& visit) {
        visit(std::span<const T>(at, count));
    }

private:
    GroupCore* world_;
};

/// For models that compute with the trained weights directly.
struct NoLowWeights {
    static constexpr bool present = false;
};

template <class Model>
struct LowWeightsOf {
    using type = NoLowWeights;
};
template <class Model>
    requires requires { typename Model::LowCopy; }
struct LowWeightsOf<Model> {
    using type = typename Model::LowCopy;
};

template <class World, class Low = NoLowWeights>
class DevicePlace; // extensions/device/place.hpp

template <class World, class Model>
struct PlaceFor {
    using type = HostPlace;
};
template <class World, trained_on_device Model>
struct PlaceFor<World, Model> {
    using type = DevicePlace<World, typename LowWeightsOf<Model>::type>;
};

} // namespace detail
UNISONO_NAMESPACE_END

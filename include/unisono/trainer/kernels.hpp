#pragma once

/// \file
/// The memory in which a trainer computes, and the loops over its elements: on the host, or on a
/// device (extensions/device/kernels.hpp). An update accesses gradients, 16-bit copies and
/// optimizer state only by `Kernels`, so it is compiled once for both. A call is for a bucket, a
/// gradient, or a chunk that stays in the first-level cache; never for an element.
///
/// Code that is compiled for one trainer (step/update_policies.hpp, update/averaging.hpp) uses
/// `HostKernels` or `DeviceKernels` by name. Beside the virtual functions, these have
/// - `arithmetic()`: runs functors of a policy (HostArithmetic, or a type with the same functions);
/// - `update`, `update_other`: an optimizer with and without clipping; `inspect`: a guard;
/// - `read(at, n, visit)`: calls visit(std::span<const E>) with the values, on the host;
/// - `shown(state)`: the optimizer's state as others may see it.
/// The type of the kernels also selects the loops of sums: `images_for` (step/grid_sums.hpp),
/// `squares_for` (summation.hpp).

#include "unisono/arithmetic/host_arithmetic.hpp"
#include "unisono/arithmetic/scan.hpp"
#include "unisono/collective/shell.hpp"
#include "unisono/core/memory.hpp"
#include "unisono/core/standard.hpp"
#include "unisono/core/text.hpp"
#include "unisono/group/group_core.hpp"
#include "unisono/guard/guard.hpp"
#include "unisono/model/model.hpp"
#include "unisono/optimizer/optimizer.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The findings of an inspection of gradients.
struct Findings {
    std::size_t offender = no_offender; ///< in the flat order
    bool large = false;                 ///< an element was not below the power of two
};

template <class T>
class Kernels {
public:
    Kernels(const Kernels&) = delete;
    Kernels& operator=(const Kernels&) = delete;
    virtual ~Kernels() = default;

    const MemorySpace space;
    /// Elements that stay in the first-level cache between passes; on a device all, since a pass is
    /// one kernel there.
    const std::size_t chunk;
    const bool has_low_weights; ///< the model computes with a 16-bit copy of the parameters

    /// Memory that the transport may map.
    template <class E>
    [[nodiscard, gnu::cold]] Array<E> allocate(std::size_t count) const {
        return {allocate_bytes(bytes_of<E>(count), false), count};
    }
    /// Zeroed memory that the transport need not see.
    template <class E>
    [[nodiscard]] Array<E> allocate_own(std::size_t count) const {
        return {allocate_bytes(bytes_of<E>(count), true), count};
    }
    [[nodiscard]] virtual OptimizerState<T> state(const StateArrays& arrays, std::size_t count) const = 0;

    /// Elements as reducers and collectives take them.
    template <class E>
    [[nodiscard]] CallBuffer buffer(E* at, std::size_t count) const {
        return buffer_at(at, count, space);
    }
    /// True if the transport moves these elements without copying them first.
    [[nodiscard]] virtual bool is_shared(const T* at, std::size_t count) const = 0;
    /// Orders the work enqueued so far before operations that start later.
    virtual void order() const {}
    /// Waits for the work enqueued so far.
    virtual void wait() const {}

    /// Calls body(at, n) for one chunk after another. All chunks but the first begin at a cache
    /// line of this array, and so usually at cache lines of other arrays as well: wide loads across
    /// lines would cost a fifth.
    template <class Body>
    void in_chunks(const T* array, std::size_t count, Body&& body) const {
        const std::size_t past_line = reinterpret_cast<std::uintptr_t>(array) % 64 / sizeof(T);
        std::size_t n = count <= chunk ? count : chunk - past_line;
        for (std::size_t at = 0; at < count; at += n, n = std::min(chunk, count - at)) body(at, n);
    }

    template <class E>
    void zero(E* at, std::size_t count) const {
        if (count != 0) zero_bytes(at, count * sizeof(E)); // the number zero
    }
    virtual void copy(T* to, const T* from, std::size_t count) const = 0;
    virtual void scale(T* values, std::size_t count, double factor) const = 0;
    /// sum[i] = weight * from[i] if it is the first addend, else sum[i] += weight * from[i]. Then
    /// zeros `from`, or leaves it.
    virtual void add(T* sum, T* from, std::size_t count, double weight, bool first, bool zeroes) const = 0;

    /// Starts an update's inspection.
    virtual void begin_inspection() const {}
    /// Looks for values that are not finite, and for values that are not below 2^large in
    /// magnitude. The first value has index `flat` in the flat order. On a device, `findings`
    /// tells.
    virtual Findings look(const T* values, std::size_t count, std::size_t flat, int large) const = 0;
    /// The findings that an inspection could not return at once. Waits for the device.
    [[nodiscard]] virtual Findings findings() const { return {}; }

    /// Call it after code other than `update` has written these parameters, so that the model's
    /// 16-bit copy of them is written.
    virtual void write_low_weights(const T*, std::size_t) const {}

protected:
    Kernels(MemorySpace where, std::size_t elements, bool low_weights)
        : space(where), chunk(elements), has_low_weights(low_weights) {}

private:
    template <class E>
    static std::size_t bytes_of(std::size_t count) {
        std::size_t bytes = 0;
        if (__builtin_mul_overflow(count, sizeof(E), &bytes))
            refuse_input({"allocate: ", count, " elements of ", sizeof(E), " bytes are more than memory can hold"});
        return bytes;
    }
    [[nodiscard]] virtual std::shared_ptr<std::byte> allocate_bytes(std::size_t bytes, bool own) const = 0;
    virtual void zero_bytes(void* at, std::size_t bytes) const = 0;
};

template <class T>
class HostKernels final : public Kernels<T> {
    using Base = Kernels<T>;

public:
    static constexpr bool on_device = false;

    template <class Model>
    HostKernels(GroupCore& world, Model&) : Base(MemorySpace::host, 16384 / sizeof(T), false), world_(&world) {}

    static constexpr HostArithmetic arithmetic() { return {}; }

    [[nodiscard, gnu::cold]] OptimizerState<T> state(const StateArrays& arrays, std::size_t count) const override {
        return {arrays, count};
    }
    template <class State>
    [[nodiscard]] static State& shown(State& state) {
        return state;
    }
    [[nodiscard]] bool is_shared(const T* at, std::size_t count) const override {
        return world_->is_shared(std::span<const T>(at, count));
    }

    void copy(T* to, const T* from, std::size_t count) const override {
        if (count != 0) std::memcpy(to, from, count * sizeof(T));
    }
    void scale(T* values, std::size_t count, double factor) const override {
        unisono::scale(std::span<T>(values, count), factor);
    }
    void add(T* sum, T* from, std::size_t count, double weight, bool first, bool zeroes) const override {
        for (std::size_t at = 0, n = 0; at < count; at += n) {
            n = std::min(this->chunk, count - at);
            const std::span<const T> one(from + at, n);
            if (first) HostArithmetic::accumulate_first(std::span<T>(sum + at, n), one, weight);
            else HostArithmetic::accumulate(std::span<T>(sum + at, n), one, weight);
            if (zeroes) this->zero(from + at, n);
        }
    }
    Findings look(const T* values, std::size_t count, std::size_t, int large) const override {
        return inspect(FiniteGuard{}, values, count, 0, large);
    }

    /// Clips, and runs an optimizer.
    template <class Optimizer, class Clipping>
    static void update(const Optimizer& optimizer, const Clipping& clipping, const OptimizerSlice<T>& state,
                       T* parameters, T* gradients, const OptimizerStep& step) {
        const std::span<T> values(gradients, state.count);
        if constexpr (Clipping::changes_elements) clipping.clip(values, step.gradient_scale);
        optimizer.update(state, std::span<T>(parameters, state.count), std::span<const T>(values),
                         {step.learning_rate, step.number, Clipping::changes_elements ? 1 : step.gradient_scale});
    }
    /// Runs an optimizer on memory that is not a parameter of the model.
    template <class Optimizer>
    static void update_other(const Optimizer& optimizer, const OptimizerSlice<T>& state, T* values, const T* gradients,
                             const OptimizerStep& step) {
        optimizer.update(state, std::span<T>(values, state.count), std::span<const T>(gradients, state.count), step);
    }
    /// Lets a guard look. A guard that looks only for NaN and infinity is asked only if a value is
    /// not below 2^large in magnitude, so that there is one pass. `offender`: an index in `values`.
    template <class Guard>
    static Findings inspect(const Guard& guard, const T* values, std::size_t count, std::size_t, int large) {
        const std::span<const T> all(values, count);
        Findings found{.large = first_at_least(all, large) != npos};
        constexpr bool asked_always = !requires { requires Guard::only_finite; };
        if (asked_always || found.large) [[unlikely]]
            found.offender = guard.first_offender(all);
        return found;
    }
    template <class E, class Visit>
    static void read(const E* at, std::size_t count, Visit&& visit) {
        visit(std::span<const E>(at, count));
    }

private:
    [[nodiscard, gnu::cold]] std::shared_ptr<std::byte> allocate_bytes(std::size_t bytes, bool own) const override {
        std::shared_ptr<std::byte> made = own ? memory_for_rank(0, bytes) : world_->allocate_bytes(bytes);
        if (bytes != 0) zero_bytes(made.get(), bytes);
        return made;
    }
    void zero_bytes(void* at, std::size_t bytes) const override { std::memset(at, 0, bytes); }

    GroupCore* world_;
};

/// The model's 16-bit copy of its parameters; void: it computes with the trained weights directly.
template <class Model>
struct LowWeightsOf {
    using type = void;
};
template <class Model>
    requires requires { typename Model::LowCopy; }
struct LowWeightsOf<Model> {
    using type = typename Model::LowCopy;
};

template <class T, class World, class Low = void>
class DeviceKernels; // extensions/device/kernels.hpp

/// The kernels of a trainer of this model.
template <class World, class Model>
struct KernelsOf {
    using type = HostKernels<parameter_element_t<Model>>;
};
template <class World, trained_on_device Model>
struct KernelsOf<World, Model> {
    using type = DeviceKernels<parameter_element_t<Model>, World, typename LowWeightsOf<Model>::type>;
};
template <class World, class Model>
using kernels_of = typename KernelsOf<World, Model>::type;

} // namespace detail
UNISONO_NAMESPACE_END

#pragma once

/// \file
/// Wire formats for gradients on a device. A compression that computes on the device handles the
/// gradients itself. For any other compression, each bucket is copied to pinned host memory as it
/// becomes ready, compressed and summed from there, and its sum is copied back. So each gradient
/// crosses the bus once in each direction, and the host waits for the model's stream once per
/// bucket.

#include "unisono/compression/compression.hpp"
#include "unisono/core/list.hpp"
#include "unisono/core/memory.hpp"
#include "unisono/layout/owners.hpp"

#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The argument of a compression that computes on the device, the counterpart of WiresOnHost
/// (extensions/compression/cast.hpp). `Computes`: the trainer's kernels.
template <class Computes>
class WiresOnDevice {
public:
    explicit WiresOnDevice(const Computes& kernels) : kernels_(&kernels) {}

    [[nodiscard]] decltype(auto) arithmetic() const { return kernels_->arithmetic(); }
    template <class T>
    [[nodiscard]] auto allocate(std::size_t count) const {
        return kernels_->template allocate<T>(count);
    }
    template <class T>
    [[nodiscard]] auto allocate_own(std::size_t count) const {
        return kernels_->template allocate_own<T>(count);
    }
    template <class T>
    [[nodiscard]] auto view(T* at, std::size_t count) const {
        return DeviceSpan<T>(at, count);
    }
    template <class T>
    void zero(T* at, std::size_t count) const {
        kernels_->zero(at, count);
    }
    void order() const { kernels_->order(); }

private:
    const Computes* kernels_;
};

/// A compression that runs on the host, for gradients on a device.
template <class World, class T, class Computes, class Compression>
class BouncedWire {
    using Run = decltype(start_compression<T>(std::declval<const Compression&>(), std::declval<World&>(),
                                              std::span<const Slice>(), std::span<const ParameterMatrix>()));

public:
    static constexpr bool is_on_host = true;

    BouncedWire(const Computes& kernels, const Compression& policy, World& world, std::span<const Slice> buckets,
                std::span<const ParameterMatrix> parameters)
        : kernels_(&kernels), buckets_(buckets), begun_(buckets.size()),
          bounced_(world.template allocate<T>(end_of(buckets))),
          run_(start_compression<T>(policy, world, buckets, parameters)) {}
    BouncedWire(const BouncedWire&) = delete;
    BouncedWire& operator=(const BouncedWire&) = delete;

    template <class Reduction>
    void begin(std::size_t b, T* values, Reduction& reduction) {
        T* const bounced = bounced_.data() + buckets_[b].first;
        kernels_->read_into(bounced, values, buckets_[b].count);
        begun_[b] = values;
        run_.begin(b, bounced, reduction);
    }
    void finish() {
        run_.finish();
        for (std::size_t b = 0; b < buckets_.size(); ++b) {
            const Slice& bucket = buckets_[b];
            if (T* const values = std::exchange(begun_[b], nullptr))
                kernels_->write(values, std::span<const T>(bounced_.data() + bucket.first, bucket.count));
        }
    }
    void rescale(double factor)
        requires requires(Run& run) { run.rescale(factor); }
    {
        run_.rescale(factor);
    }
    void correct(double factor)
        requires requires(Run& run) { run.correct(factor); }
    {
        run_.correct(factor);
    }
    void forget() { run_.forget(); }
    void restart() { restart_compression(run_); }
    [[nodiscard]] std::size_t bytes() const { return bounced_.size() * sizeof(T) + run_.bytes(); }

private:
    const Computes* kernels_;
    List<Slice> buckets_;
    std::vector<T*> begun_; ///< device addresses
    Memory<T> bounced_;     ///< bounce buffer: pinned host memory
    Run run_;
};

template <class C, class T, class World, class Computes>
concept compresses_on_device =
    requires(const C& policy, const WiresOnDevice<Computes>& device, World& world, std::span<const Slice> buckets) {
        policy.template start_on<T>(device, world, buckets);
    };

/// Starts a compression for gradients on a device: see `start_compression_on`
/// (compression/compression.hpp).
template <class T, class Computes, class C, class World>
[[nodiscard]] auto start_device_compression(std::type_identity<T>, const Computes& kernels, const C& policy,
                                            World& world, std::span<const Slice> buckets,
                                            std::span<const ParameterMatrix> parameters) {
    if constexpr (compresses_on_device<C, T, World, Computes>)
        return policy.template start_on<T>(WiresOnDevice<Computes>(kernels), world, buckets);
    else return BouncedWire<World, T, Computes, C>(kernels, policy, world, buckets, parameters);
}

} // namespace detail
UNISONO_NAMESPACE_END

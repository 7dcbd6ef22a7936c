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
/// (extensions/compression/cast.hpp). `Place`: the trainer's, see trainer/place.hpp.
template <class Place>
class WiresOnDevice {
public:
    explicit WiresOnDevice(const Place& place) : place_(&place) {}

    [[nodiscard]] decltype(auto) arithmetic() const { return place_->arithmetic(); }
    template <class T>
    [[nodiscard]] auto allocate(std::size_t count) const {
        return place_->template allocate<T>(count);
    }
    template <class T>
    [[nodiscard]] auto allocate_own(std::size_t count) const {
        auto made = place_->template allocate<T>(count);
        zero(made.data(), count);
        return made;
    }
    template <class T>
    [[nodiscard]] auto view(T* at, std::size_t count) const {
        return place_->view(at, count);
    }
    template <class T>
    void zero(T* at, std::size_t count) const {
        place_->arithmetic().zero(std::span<T>(at, count));
    }
    void order() const { place_->order(); }

private:
    const Place* place_;
};

/// A compression that runs on the host, for gradients on a device.
template <class World, class T, class Place, class Compression>
class BouncedWire {
    using Run = decltype(start_compression<T>(std::declval<const Compression&>(), std::declval<World&>(),
                                              std::span<const Slice>(), std::span<const ParameterMatrix>()));

public:
    static constexpr bool is_on_host = true;

    BouncedWire(const Place& place, const Compression& policy, World& world, std::span<const Slice> buckets,
                std::span<const ParameterMatrix> parameters)
        : place_(&place), buckets_(buckets), begun_(buckets.size()),
          bounced_(world.template allocate<T>(end_of(buckets))),
          run_(start_compression<T>(policy, world, buckets, parameters)) {}
    BouncedWire(const BouncedWire&) = delete;
    BouncedWire& operator=(const BouncedWire&) = delete;

    template <class Reduction>
    void begin(std::size_t b, T* values, Reduction& reduction) {
        T* const bounced = bounced_.data() + buckets_[b].first;
        place_->read_into(bounced, values, buckets_[b].count);
        begun_[b] = values;
        run_.begin(b, bounced, reduction);
    }
    void finish() {
        run_.finish();
        for (std::size_t b = 0; b < buckets_.size(); ++b) {
            const Slice& bucket = buckets_[b];
            if (T* const values = std::exchange(begun_[b], nullptr))
                place_->write(values, std::span<const T>(bounced_.data() + bucket.first, bucket.count));
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
    const Place* place_;
    List<Slice> buckets_;
    std::vector<T*> begun_; ///< device addresses
    Memory<T> bounced_;     ///< bounce buffer: pinned host memory
    Run run_;
};

template <class C, class T, class World, class Place>
concept compresses_on_device =
    requires(const C& policy, const WiresOnDevice<Place>& device, World& world, std::span<const Slice> buckets) {
        policy.template start_on<T>(device, world, buckets);
    };

/// Starts a compression for gradients on a device (trainer/step/whole.hpp).
template <class T, class Place, class C, class World>
[[nodiscard]] auto start_device_wire(std::type_identity<T>, const Place& place, const C& policy, World& world,
                                     std::span<const Slice> buckets, std::span<const ParameterMatrix> parameters) {
    if constexpr (compresses_on_device<C, T, World, Place>)
        return policy.template start_on<T>(WiresOnDevice<Place>(place), world, buckets);
    else return BouncedWire<World, T, Place, C>(place, policy, world, buckets, parameters);
}

} // namespace detail
UNISONO_NAMESPACE_END

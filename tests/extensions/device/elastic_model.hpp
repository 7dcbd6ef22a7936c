// The model of the tests of elastic worlds (extensions/elastic/training.hpp), on a device.
#pragma once

#include "on_device.hpp"

#include "extensions/elastic/training.hpp"

#include <functional>

namespace unisono_test {

/// Called for each micro-batch of this thread.
inline thread_local std::function<void()> before_batch = [] {};

/// The layer's parameters and gradients are on the rank's device, and in no other memory.
template <un::streaming_transport Transport>
struct Placed<un::ElasticWorld<Transport>> {
    Placed(un::ElasticWorld<Transport>& world, Layer& layer)
        : here(world.group().endpoint().device()), model(world.group(), layer) {}
    un::detail::CudaDeviceGuard here;
    struct Model : test::OnDevice<Layer> {
        using test::OnDevice<Layer>::OnDevice;
        double operator()(const un::RowBatch<float>& batch, un::Pass& pass) {
            before_batch();
            return test::OnDevice<Layer>::operator()(batch, pass);
        }
    };
    Model model;
};

} // namespace unisono_test

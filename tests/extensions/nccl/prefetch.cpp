// Batches that are copied in advance: extensions/device/device_rows.hpp by CUDA's streams.
#include "support.hpp"

#include <thread>
#include <unisono/data/loader.hpp>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <span>

namespace un = unisono;

static_assert(un::batch_copier<un::CudaPrefetch>);

namespace {

struct InOrder {
    struct View {
        std::span<const std::size_t> samples = {};
    };
    std::size_t batches = 0, each = 0, at = 0;
    std::vector<std::size_t> indices = {};
    [[nodiscard]] bool done() const { return at == batches; }
    View next() {
        indices.resize(each);
        for (std::size_t i = 0; i < each; ++i) indices[i] = at * each + i;
        ++at;
        return {indices};
    }
};

} // namespace

BOOST_AUTO_TEST_SUITE(prefetch)

BOOST_AUTO_TEST_CASE(a_stream_reads_batches_that_were_copied_ahead) {
    const test::Clean clean;
    constexpr std::size_t width = 50, each = 20, batches = 40;
    std::vector<float> values(batches * each * width);
    std::iota(values.begin(), values.end(), 0.0f);
    const un::RowData rows{values, width};
    const auto pinned = un::detail::allocate_pinned(0, nullptr, values.size() * sizeof(float)); // else copies wait
    const std::span read(reinterpret_cast<float*>(pinned.get()), values.size());
    {
        un::DeviceRows data(rows, un::CudaPrefetch(0));
        const auto stream = un::detail::CudaStream::make();
        un::Loader loader(data, InOrder{batches, each}, {.depth = 2});
        float* to = read.data();
        // The copy stands for a kernel: nothing waits for it here.
        while (auto* const item = loader.next()) {
            const auto all = item->batch->values();
            item->batch->on(stream.get());
            un::detail::check_cuda(
                cudaMemcpyAsync(to, all.data(), all.size_bytes(), cudaMemcpyDeviceToHost, stream.get()),
                "cudaMemcpyAsync");
            to += all.size();
        }
        un::detail::check_cuda(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize");
    }
    BOOST_TEST(std::ranges::equal(read, values));
}

#ifndef UNISONO_TEST_ON_GPU
// A program may free what it has copied from; the stand-in's stream is behind it then, too.
BOOST_AUTO_TEST_CASE(the_stand_in_has_taken_pageable_bytes_when_a_copy_returns) {
    const test::Clean clean;
    const auto stream = un::detail::CudaStream::make();
    const auto device = un::detail::allocate_device(0, sizeof(int));
    std::atomic<bool> go_on = false;
    stand_in::launch(stream.get(), [&] {
        while (!go_on) std::this_thread::yield();
    });
    int value = 7, read = 0;
    const auto copy = [&](void* to, const void* from, cudaMemcpyKind kind) {
        un::detail::check_cuda(cudaMemcpyAsync(to, from, sizeof(int), kind, stream.get()), "cudaMemcpyAsync");
    };
    copy(device.get(), &value, cudaMemcpyHostToDevice);
    value = 8;
    go_on = true;
    copy(&read, device.get(), cudaMemcpyDeviceToHost);
    BOOST_TEST(read == 7); // it has arrived, and nothing has waited for the stream
}

BOOST_AUTO_TEST_CASE(a_device_without_memory_or_that_hangs_is_an_error) {
    const test::Clean clean;
    const std::vector<float> values(1000);
    const un::RowData rows{values, 10};
    const std::vector<std::size_t> ten = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
    const stand_in::Scene scene({.memory = 100});
    const un::DeviceRows data(rows, un::CudaPrefetch(0));
    BOOST_CHECK_EXCEPTION(static_cast<void>(data.batch(ten)), un::error, [](const un::error& e) {
        return e.code() == un::ErrorCode::refused && std::string(e.what()).find("cudaMalloc") != std::string::npos;
    });
}

BOOST_AUTO_TEST_CASE(the_host_does_not_wait_for_ever) {
    const test::Clean clean;
    const std::vector<float> values(1000);
    const un::RowData rows{values, 10};
    const std::vector<std::size_t> few = {0, 1}, more = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
    const auto stream = un::detail::CudaStream::make();
    std::atomic<bool> go_on = false;
    {
        const un::DeviceRows data(rows, un::CudaPrefetch(0, std::chrono::milliseconds(200)));
        {
            auto batch = data.batch(few);
            batch.on(stream.get());
            stand_in::launch(stream.get(), [&] {
                while (!go_on) std::this_thread::yield();
            });
        }
        // A larger batch needs other memory, and the old memory is in use.
        BOOST_CHECK_EXCEPTION(static_cast<void>(data.batch(more)), un::error,
                              [](const un::error& e) { return e.code() == un::ErrorCode::timeout; });
        go_on = true;
        BOOST_TEST(data.batch(more).rows() == 10u);
    }
}
#endif

BOOST_AUTO_TEST_SUITE_END()

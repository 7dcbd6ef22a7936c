// A Trainer of a model whose memory the host must not touch. The stand-in for a GPU is pages that
// only the model's own code and Thrust's copies may read or write. A signal ends the test on any
// other access.
#include "support.hpp"

#include <unisono/extensions/device/model.hpp>
#include <unisono/unisono.hpp>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <sys/mman.h>
#include <thrust/device_vector.h>
#include <vector>

using namespace thrust_test;

namespace {

/// Memory behind a fence. Each process has its own, as has a rank that is a thread.
class FencedMemory {
public:
    explicit FencedMemory(std::size_t count) : count_(count) {
        void* const at = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED || count * sizeof(float) > bytes) throw std::runtime_error("no memory for the stand-in");
        data_ = static_cast<float*>(at);
    }
    FencedMemory(const FencedMemory&) = delete;
    FencedMemory& operator=(const FencedMemory&) = delete;
    ~FencedMemory() { ::munmap(data_, bytes); }

    [[nodiscard]] std::span<float> values() const { return {data_, count_}; }
    void open() const { protect(PROT_READ | PROT_WRITE); }
    void close() const { protect(PROT_NONE); }

private:
    static constexpr std::size_t bytes = 1 << 16;
    void protect(int how) const {
        if (::mprotect(data_, bytes, how) != 0) throw std::runtime_error("mprotect");
    }
    std::size_t count_;
    float* data_;
};

constexpr std::size_t inputs = 24, hidden = 40;

/// y = v . (W x). Adds its gradients where it is told, and counts nothing else.
struct Network {
    std::span<float> w, v, w_gradient, v_gradient;

    template <class Batch>
    double run(const Batch& batch) {
        double loss = 0;
        for (std::size_t row = 0; row < batch.rows(); ++row) {
            const auto x = batch.row(row);
            std::array<float, hidden> h{};
            float y = -1;
            for (std::size_t i = 0; i < hidden; ++i) {
                for (std::size_t j = 0; j < inputs; ++j) h[i] += w[i * inputs + j] * x[j];
                y += v[i] * h[i];
            }
            y /= static_cast<float>(batch.rows());
            loss += static_cast<double>(y) * static_cast<double>(y);
            for (std::size_t i = 0; i < hidden; ++i) {
                v_gradient[i] += y * h[i];
                for (std::size_t j = 0; j < inputs; ++j) w_gradient[i * inputs + j] += y * v[i] * x[j];
            }
        }
        return loss;
    }
    void start() {
        for (std::size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(i % 7) / 32 - 0.1f;
        for (std::size_t i = 0; i < v.size(); ++i) v[i] = static_cast<float>(i % 5) / 16 - 0.1f;
    }
};

struct HostNetwork {
    std::vector<float> memory = std::vector<float>(2 * (inputs + 1) * hidden);
    std::array<std::span<float>, 2> parameters() { return {span(0, inputs * hidden), span(inputs * hidden, hidden)}; }
    std::array<std::span<float>, 2> gradients() {
        const std::size_t half = memory.size() / 2;
        return {span(half, inputs * hidden), span(half + inputs * hidden, hidden)};
    }
    std::span<float> span(std::size_t first, std::size_t count) { return std::span(memory).subspan(first, count); }
    Network network() { return {parameters()[0], parameters()[1], gradients()[0], gradients()[1]}; }
    HostNetwork() { network().start(); }

    template <class Batch>
    double operator()(const Batch& batch, un::Pass& pass) {
        const double loss = network().run(batch);
        pass.ready(1);
        return loss;
    }
};

/// The same model behind fences, which its own code opens.
struct FencedNetwork {
    FencedMemory w{inputs * hidden}, v{hidden}, w_gradient{inputs * hidden}, v_gradient{hidden};
    std::array<const FencedMemory*, 4> all{&w, &v, &w_gradient, &v_gradient};
    int throws_at = -1;

    std::array<std::span<float>, 2> parameters() { return {w.values(), v.values()}; }
    std::array<std::span<float>, 2> gradients() { return {w_gradient.values(), v_gradient.values()}; }
    Network network() { return {w.values(), v.values(), w_gradient.values(), v_gradient.values()}; }
    FencedNetwork() {
        open();
        network().start();
        close();
    }
    void open() const {
        for (const FencedMemory* one : all) one->open();
    }
    void close() const {
        for (const FencedMemory* one : all) one->close();
    }
    template <class Batch>
    double operator()(const Batch& batch, un::Pass& pass) {
        open();
        const double loss = network().run(batch);
        close();
        if (throws_at-- == 0) throw std::runtime_error("half-way");
        pass.ready(1); // the fence is closed: the copy opens it
        return loss;
    }
};

/// Thrust's copies, which a device's driver allows.
struct FencedCopies {
    const FencedNetwork* device;
    void to_host(std::span<float> to, std::span<const float> from) const {
        device->open();
        un::ThrustCopies{}.to_host(to, from);
        device->close();
    }
    void to_device(std::span<float> to, std::span<const float> from) const {
        device->open();
        un::ThrustCopies{}.to_device(to, from);
        device->close();
    }
    void zero(std::span<float> values) const {
        device->open();
        un::ThrustCopies{}.zero(values);
        device->close();
    }
};

const std::vector<float>& samples() {
    static const std::vector<float> values = un::torch_rand(3, 64 * inputs);
    return values;
}

/// Rank 0's parameters after two epochs.
template <class World, class Model, class... Policies>
std::vector<float> trained(World& world, Model& model, const Policies&... policies) {
    const un::RowData data(samples(), inputs);
    un::Trainer trainer{world, model, un::DistributedSampler{.shuffle = true, .seed = 1}, policies...};
    trainer.fit(data, {.epochs = 2, .batch_size = 4, .progress = false});
    std::vector<float> all;
    for (const auto one : model.parameters()) all.insert(all.end(), one.begin(), one.end());
    return all;
}

template <class... Policies>
void same_as_on_the_host(int ranks, const Policies&... policies) {
    std::vector<std::vector<float>> host(static_cast<std::size_t>(ranks)), device(host), behind_the_fence(host);
    un::run<un::InProcess>(ranks, [&](auto& world) {
        const auto rank = static_cast<std::size_t>(world.rank());
        HostNetwork network;
        host[rank] = trained(world, network, policies...);
        FencedNetwork fenced;
        un::DeviceModel model(fenced, FencedCopies{&fenced});
        device[rank] = trained(world, model, policies...);
        fenced.open();
        for (const auto one : fenced.parameters())
            behind_the_fence[rank].insert(behind_the_fence[rank].end(), one.begin(), one.end());
    });
    HostNetwork untrained;
    BOOST_TEST(host[0][0] != untrained.memory[0]);
    for (std::size_t rank = 0; rank < host.size(); ++rank) {
        require_same(device[rank], host[rank], "parameters");
        require_same(behind_the_fence[rank], host[rank], "the device's parameters");
    }
}

} // namespace

BOOST_AUTO_TEST_SUITE(device_model)

BOOST_AUTO_TEST_CASE(trains_as_on_the_host) {
    same_as_on_the_host(2, un::RingReducer{}, un::Accumulate{.steps = 2}, un::AdamW{.learning_rate = 0.01},
                        un::StateSharding{});
}

BOOST_AUTO_TEST_CASE(a_call_that_throws_leaves_nothing_behind) {
    FencedNetwork fenced;
    un::DeviceModel model(fenced, FencedCopies{&fenced});
    const un::RowData data(samples(), inputs);
    const std::vector<std::size_t> indices{1, 2, 3};
    const auto batch = data.batch(indices);
    const auto gradient = [&] {
        std::vector<float> all;
        for (const auto one : model.gradients()) {
            all.insert(all.end(), one.begin(), one.end());
            std::fill(one.begin(), one.end(), 0.0f);
        }
        return all;
    };
    un::Pass first;
    model(batch, first);
    const std::vector<float> wanted = gradient();
    fenced.throws_at = 0;
    un::Pass second;
    BOOST_CHECK_THROW(model(batch, second), std::runtime_error);
    un::Pass third;
    model(batch, third);
    require_same(gradient(), wanted, "the gradient after a call that threw");
}

BOOST_AUTO_TEST_CASE(copies_of_thrust) {
    thrust::device_vector<float> device(3, 2.0f);
    std::vector<float> host(3);
    const un::ThrustCopies copies;
    copies.to_host(out(host), std::span<const float>(un::span_of(device)));
    BOOST_TEST(host[2] == 2);
    host[1] = 5;
    copies.to_device(un::span_of(device), in(host));
    BOOST_TEST(device[1] == 5.0f);
    copies.zero(un::span_of(device));
    BOOST_TEST(device[1] == 0.0f);
}

BOOST_AUTO_TEST_SUITE_END()

// All of unisono/thrust.hpp for memory of a GPU: nvcc compiles it, and check.py examines the code.
// It is not run.
#include <unisono/thrust.hpp>

#include <unisono/arithmetic/kernels.hpp>
#include <unisono/extensions/device/master_weights.hpp>
#include <unisono/optimizer/adagrad.hpp>
#include <unisono/optimizer/adam.hpp>
#include <unisono/optimizer/rmsprop.hpp>
#include <unisono/optimizer/sgd.hpp>
#include <unisono/trainer/step/grid_sums.hpp>
#include <unisono/update/averaging.hpp>

#include <thrust/device_vector.h>

namespace un = unisono;

namespace {

template <class T>
using Vector = thrust::device_vector<T>;

// A policy that is not recognised as a GPU's would get a thread per tile instead of one per
// element.
static_assert(un::detail::runs_on_gpu<std::remove_cvref_t<decltype(thrust::device)>>);
static_assert(un::detail::runs_on_gpu<decltype(thrust::cuda::par.on(cudaStream_t{}))>);
static_assert(un::detail::runs_on_gpu<decltype(thrust::cuda::par_nosync.on(cudaStream_t{}))>);
static_assert(!un::detail::runs_on_gpu<std::remove_cvref_t<decltype(thrust::host)>>);

/// A user's functor.
struct Mix {
    float share;
    UNISONO_ON_DEVICE float operator()(float a, float b) const { return a < b ? b : a + share; }
};

/// Its memory is on the device.
struct Network {
    Vector<float> weights = Vector<float>(100), gradient = Vector<float>(100);
    std::span<float> parameters() { return un::span_of(weights); }
    std::span<float> gradients() { return un::span_of(gradient); }
    double operator()(int, un::Pass&) { return 0; }
};

template <class T>
void grids(const auto& on, std::span<T> x) {
    Vector<std::int64_t> image(x.size());
    const un::Grid grid = un::Grid::above<T>(on.needed_exponent(x), 3);
    on.to_grid(un::span_of(image), x, 0.5, grid);
    on.add_to_grid(un::span_of(image), x, 2.0, grid);
    on.from_grid(x, std::span<const std::int64_t>(un::span_of(image)), grid);
}

} // namespace

int main() {
    // A stream of the program: Thrust's calls are asynchronous where possible.
    const un::ThrustArithmetic on(thrust::cuda::par.on(cudaStream_t{}));
    Vector<float> floats(1000, 1.0f), sum(1000);
    Vector<un::float16> halves(1000);
    const std::span<float> x = un::span_of(floats), y = un::span_of(sum);

    on.accumulate(y, x, 0.5);
    on.accumulate(y, un::span_of(halves), 0.5);
    on.scale(y, 0.25);
    on.divide(y, 3);
    on.cast(un::span_of(halves), x);
    const float* const from[] = {x.data(), y.data()};
    float* const to[] = {x.data()};
    on.combine<float>(un::Sum{}, from, to, x.size());
    on.combine<float>(Mix{0.5f}, from, to, x.size());
    on.combine_on_grid<float>(from, to, x.size(), 0.5, un::Grid{0});
    grids(on, x);
    Vector<std::int32_t> narrow(1000);
    on.add_to_grid(un::span_of(narrow), x, 1.0, un::NarrowGrid{3, 26});
    Vector<std::uint64_t> noted(un::NotedSquares::words);
    on.note_squares(x, thrust::raw_pointer_cast(noted.data()));
    on.note_squares(x, thrust::raw_pointer_cast(noted.data()), 7);
    double result = on.sum_of_squares(x) + static_cast<double>(on.first_non_finite(x));

    // The operations that a trainer adds: taking 16-bit gradients, common parameters, and sums of
    // images.
    on.apply(un::detail::TakeElement<un::float16>{}, y, un::span_of(halves));
    on.fill(un::span_of(halves), un::float16{});
    on.apply(un::detail::Difference<float>{}, y, std::span<const float>(x), std::span<const float>(x));
    on.apply(un::detail::Subtract<float>{}, y, std::span<const float>(x));
    on.apply(un::detail::Mix<float>{0.5f, 0.5f}, y, std::span<const float>(x));
    on.apply(un::detail::AddImage<std::int32_t>{}, un::span_of(narrow),
             std::span<const std::int32_t>(un::span_of(narrow)));

    const auto train = [&](const auto& policy, const auto& clipping, auto gradients) {
        auto state = un::thrust_optimizer_state<Vector<float>>(policy.state(), x.size());
        un::update_on(on, policy, state.all(), x, gradients, {.learning_rate = 0.1}, clipping, un::span_of(halves));
    };
    train(un::AdamW{}, un::ClipByValue{}, un::span_of(halves));
    train(un::Sgd{.momentum = 0.9}, un::NoClipping{}, y);
    train(un::Adagrad{}, un::NoClipping{}, y);
    train(un::RmsProp{.momentum = 0.9}, un::NoClipping{}, y);

    Network network;
    un::DeviceModel model(network, un::ThrustCopies{});
    un::Pass pass;
    result += model(1, pass);
    return result > 0 ? 0 : 1;
}

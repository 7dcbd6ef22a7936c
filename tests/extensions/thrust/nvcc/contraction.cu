// A kernel for each functor whose bits are promised, without Thrust: check.py counts the fused
// multiply-adds in each.
#include <unisono/arithmetic/accumulate.hpp>
#include <unisono/arithmetic/operations.hpp>
#include <unisono/extensions/thrust/elements.hpp>
#include <unisono/guard/clipping.hpp>
#include <unisono/optimizer/adagrad.hpp>
#include <unisono/optimizer/adam.hpp>
#include <unisono/optimizer/rmsprop.hpp>
#include <unisono/optimizer/sgd.hpp>

namespace un = unisono;

/// Runs an optimizer's functor in a kernel of its own.
template <class Functor, class... T>
__global__ void update_kernel(Functor functor, T*... arrays) {
    functor(arrays[threadIdx.x]...);
}
struct Launch {
    template <class Functor, class... T>
    void apply(const Functor& functor, std::span<T>... spans) const {
        update_kernel<<<1, 1>>>(functor, spans.data()...);
    }
};

template <class Functor>
__global__ void element_kernel(Functor functor, float* y, const float* x) {
    functor(y[threadIdx.x], x[threadIdx.x]);
}

// Shows that the test detects contraction: nvcc fuses this product and sum.
__global__ void contracted_kernel(float* y, const float* x) { y[threadIdx.x] += x[threadIdx.x] * 0.3f; }

template <class P>
void optimize(const P& policy, float* x) {
    un::OptimizerSlice<float> state;
    state.arrays = {x, x, x, x};
    policy.update(state, std::span(x, 0), std::span<const float>(x, 0), {}, Launch{});
}

void launch_all(float* x) {
    element_kernel<<<1, 1>>>(un::detail::AddWeighted<float, float>{0.3f}, x, x);
    optimize(un::Sgd{}, x);
    optimize(un::AdamW{}, x);
    optimize(un::Adagrad{}, x);
    optimize(un::RmsProp{}, x);
}

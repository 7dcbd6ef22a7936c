// What nvcc must compile, in a source that links to unisono::devices and is compiled by another
// compiler.
#define UNISONO_DEVICES
#include "unisono/nccl.hpp"
#include "unisono/unisono.hpp"

namespace un = unisono;

struct Own {
    UNISONO_INLINE void operator()(float& x) const { x += 1; }
};
struct OwnOperation {
    UNISONO_INLINE float operator()(float a, float b) const { return a < b ? b : a; }
};
/// Its functor is its own.
struct OwnOptimizer : un::Sgd {
    template <class T, class Where = un::OnHost>
    void update(const un::OptimizerSlice<T>&, std::span<T> parameters, std::type_identity_t<std::span<const T>>,
                const un::OptimizerStep&, const Where& where = {}) const {
        where.apply(Own{}, parameters, std::span<const T>(parameters));
    }
};

#ifdef CASE_functor
// expect: unisono::StreamArithmetic: found a functor whose kernel the library unisono::devices does not have. Required: an optimizer, clipping, update or compression of Unisono, on float or double; or a source that nvcc compiles.
void add_one(const un::StreamArithmetic<cudaStream_t>& on, std::span<float> x) { on.apply(Own{}, x); }
#endif

#ifdef CASE_operation
// expect: found: a schedule that combines on memory of a device, in a source that is not compiled for devices. Required: NativeSchedule; or, for Sum, Product, Min and Max, the CMake target unisono::devices; or a source that nvcc compiles
void combine(un::Group<un::Nccl>& world, un::DeviceSpan<float> x) {
    un::all_reduce(world, x, OwnOperation{}, un::RingSchedule{});
}
#endif

#ifdef CASE_combination
// expect: unisono::StreamArithmetic: found an operation of your own. Required: Sum, Product, Min, Max or WeightedMean; or a source that nvcc compiles.
void combine(const un::StreamArithmetic<cudaStream_t>& on, std::span<const float* const> from,
             std::span<float* const> to) {
    on.combine(OwnOperation{}, from, to, 1);
}
#endif

#ifdef CASE_own_optimizer
// expect: unisono::StreamArithmetic: found a functor whose kernel the library unisono::devices does not have.
void update(const un::StreamArithmetic<cudaStream_t>& on, std::span<float> parameters) {
    un::update_on(on, OwnOptimizer{}, un::OptimizerSlice<float>{}, parameters, parameters, {});
}
#endif

#ifdef CASE_everything_of_the_library
// expect-success
#endif

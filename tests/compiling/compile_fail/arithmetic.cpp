// Arithmetic that is refused at compile time.

#if defined(CASE_fast_math) && !defined(__FAST_MATH__)
// expect: Unisono promises bits: -ffast-math
#define __FAST_MATH__ 1
#endif

#include <unisono/arithmetic/accumulate.hpp>
#include <unisono/arithmetic/operations.hpp>

#include <span>

struct State {
    char bytes[65];
    float operator()(float a, float) const { return a; }
};

#if defined(CASE_operation_too_large)
// expect: reduction_operation
const State state{};
const auto reduction = unisono::make_reduction<State, float>(state);
#endif

#if defined(CASE_operation_of_other_type)
// expect: reduction_operation
const auto operation = [](float a, float b) { return static_cast<double>(a) + static_cast<double>(b); };
const auto reduction = unisono::make_reduction<decltype(operation), float>(operation);
#endif

#if defined(CASE_mean_of_integers)
// expect: floating_element
const auto reduction = unisono::make_reduction<unisono::WeightedMean, int>(unisono::WeightedMean{});
#endif

#if defined(CASE_operation_that_is_gone)
// expect: deleted
struct Small {
    float operator()(float a, float) const { return a; }
};
const auto gone = unisono::make_reduction<Small, float>(Small{});
#endif

#if defined(CASE_scaling_integers)
// expect: floating_element
void scale_integers(std::span<int> x) { unisono::scale(x, 2.0); }
#endif

#if defined(CASE_control)
// expect-success
const auto sum = unisono::make_reduction<unisono::Sum, float>(unisono::Sum{});
void scale_floats(std::span<float> x) { unisono::scale(x, 2.0); }
#endif

#include "support.hpp"

#include <unisono/guard/clipping.hpp>
#include <unisono/optimizer/adagrad.hpp>
#include <unisono/optimizer/adam.hpp>
#include <unisono/optimizer/rmsprop.hpp>
#include <unisono/optimizer/sgd.hpp>

#include <limits>
#include <thrust/device_vector.h>

using namespace thrust_test;

namespace {

constexpr std::size_t count = 9001;

/// NaN of infinities differs in its sign: x86 makes it negative, a GPU positive.
template <class T>
Array<T> without_signs_of_nan(Array<T> x) {
#ifdef UNISONO_TEST_ON_GPU
    for (T& one : x) {
        const auto wide = un::detail::widen(one);
        if (wide != wide) one = static_cast<T>(std::numeric_limits<float>::quiet_NaN());
    }
#endif
    return x;
}

/// Three updates, on the host in separate passes and on Thrust in one pass, have the same bits.
template <class T, class G = T, class Clipping = un::NoClipping, class On, class Policy>
void train(const On& on, const Policy& policy, const Clipping& clipping = {}) {
    Array<T> host = finite<T>(71, count);
    Array<T> parameters = host;
    Array<un::bfloat16> low(count), host_low(count);
    auto host_state = un::start<T>(policy, count);
    auto state = un::thrust_optimizer_state<thrust::device_vector<T>>(policy.state(), count);
    for (std::uint64_t number = 1; number <= 3; ++number) {
        const Array<G> gradients = finite<G>(80 + number, count);
        const un::OptimizerStep step{
            .learning_rate = 0.01 / static_cast<double>(number), .number = number, .gradient_scale = 1.0 / 3};
        Array<T> wide(count);
        un::accumulate_first(out(wide), in(gradients));
        un::OptimizerStep host_step = step;
        if constexpr (Clipping::changes_elements) {
            clipping.clip(out(wide), step.gradient_scale);
            host_step.gradient_scale = 1;
        }
        policy.update(host_state.all(), out(host), in(wide), host_step);
        un::accumulate_first(out(host_low), in(host));
        // Updates one slice at a time, as owners do, and the 16-bit parameters only sometimes.
        const std::size_t cut = 4099;
        un::update_on(on, policy, state.slice(0, cut), out(parameters).first(cut), in(gradients).first(cut), step,
                      clipping, out(low).first(cut));
        un::update_on(on, policy, state.slice(cut, count - cut), out(parameters).subspan(cut),
                      in(gradients).subspan(cut), step, clipping);
        on.cast(out(low).subspan(cut), in(parameters).subspan(cut));
        require_same(without_signs_of_nan(parameters), without_signs_of_nan(host), "parameters");
        require_same(without_signs_of_nan(low), without_signs_of_nan(host_low), "the model's 16-bit copy");
        for (std::size_t a = 0; a < state.size(); ++a) {
            const auto wanted = host_state.array(a);
            require_same(without_signs_of_nan(download(state.array(a))),
                         without_signs_of_nan(Array<T>(wanted.begin(), wanted.end())), "state");
        }
    }
}

bool is_bad_input(const un::error& e) { return e.code() == un::ErrorCode::bad_input; }

} // namespace

BOOST_AUTO_TEST_SUITE(update)

BOOST_AUTO_TEST_CASE_TEMPLATE(has_the_bits_of_the_host, On, Systems) {
    const On on;
    train<float>(on, un::AdamW{.weight_decay = 0.1});
    train<float>(on, un::Sgd{.momentum = 0.9, .nesterov = true, .weight_decay = 0.01});
}

BOOST_AUTO_TEST_CASE(every_optimizer) {
    const First on;
    train<float>(on, un::Sgd{.weight_decay = 0.01});
    train<float>(on, un::Sgd{.momentum = 0.9}); // also by the shorter formula
    train<double>(on, un::Adam{.amsgrad = true});
    train<float>(on, un::Adagrad{.learning_rate_decay = 0.1, .initial_accumulator = 0.5});
    train<float>(on, un::RmsProp{});
    train<float>(on, un::RmsProp{.momentum = 0.9});
    train<float>(on, un::RmsProp{.centered = true});
    train<double>(on, un::RmsProp{.momentum = 0.9, .centered = true});
}

BOOST_AUTO_TEST_CASE(clips_unscales_and_widens_in_the_same_pass) {
    const First on;
    train<float>(on, un::AdamW{}, un::ClipByValue{.limit = 0.5});
    train<float, un::bfloat16>(on, un::Sgd{.momentum = 0.9}, un::ClipByValue{.limit = 0.5});
    train<float, un::float16>(on, un::Sgd{});
}

BOOST_AUTO_TEST_CASE(refuses_sizes_that_differ) {
    const First on;
    Array<float> four(4), five(5);
    Array<un::bfloat16> low(3);
    const un::Sgd sgd{.momentum = 0.9};
    auto state = un::thrust_optimizer_state<thrust::device_vector<float>>(sgd.state(), 4);
    BOOST_CHECK_EXCEPTION(un::update_on(on, sgd, state.all(), out(four), in(five), {}), un::error, is_bad_input);
    BOOST_CHECK_EXCEPTION(un::update_on(on, sgd, state.slice(0, 3), out(four), in(four), {}), un::error, is_bad_input);
    BOOST_CHECK_EXCEPTION(un::update_on(on, sgd, state.all(), out(four), in(four), {}, un::NoClipping{}, out(low)),
                          un::error, is_bad_input);
    BOOST_CHECK_EXCEPTION(static_cast<void>(state.slice(3, 2)), un::error, is_bad_input);
}

BOOST_AUTO_TEST_SUITE_END()

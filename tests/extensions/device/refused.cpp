// The policies that a model on a device does not support, by the rules of a Trainer, and the final
// number of combinations that ran.
#include "chosen.hpp"
#include "on_device.hpp"

#include <unisono/automatic.hpp>
#include <unisono/extensions/compression/power_sgd.hpp>
#include <unisono/extensions/updates/asynchronous.hpp>
#include <unisono/extensions/updates/gossip.hpp>
#include <unisono/extensions/updates/hogwild.hpp>
#include <unisono/extensions/updates/streaming_diloco.hpp>
#include <unisono/guard/guard.hpp>
#include <unisono/reducer/parameter_server.hpp>
#include <unisono/reproducible.hpp>
#include <unisono/sharded.hpp>
#include <unisono/sharding/sharding.hpp>
#include <unisono/update/averaging.hpp>

#include <cstdio>

namespace un = unisono;

namespace {

struct OnNccl {
    un::DeviceSpan<float> parameters() { return {}; }
    un::DeviceSpan<float> gradients() { return {}; }
    cudaStream_t stream() { return {}; }
};
/// Examines elements.
struct OwnGuard : un::FiniteGuard {
    static constexpr bool only_finite = false;
};

int known = 0, refused = 0;

template <class Reducer, class Update, class Sharding, class Guard, class Compression, class Summation,
          bool ReducerGiven = !std::is_same_v<Reducer, un::NativeReducer>>
void ask() {
    ++known;
    using Other = std::conditional_t<ReducerGiven, Reducer, un::Sgd>; // a default if none is given
    constexpr std::string_view why =
        un::refusal<un::Group<un::Nccl>, OnNccl, Other, Update, Sharding, Guard, Compression, Summation>;
    if (why.empty()) return;
    ++refused;
    ++unisono_matrix::counts().refused[std::string(why)];
}

/// Each policy of the family with the defaults of the others, which may be combined or not.
template <class... Policy>
void shardings(int expected) {
    refused = 0;
    (ask<un::NativeReducer, un::Synchronous, Policy, un::FiniteGuard, un::NoCompression, un::PlainSums>(), ...);
    BOOST_TEST(refused == expected);
}
template <class... Policy>
void updates(int expected) {
    refused = 0;
    (ask<un::NativeReducer, Policy, un::Replicated, un::FiniteGuard, un::NoCompression, un::PlainSums>(), ...);
    BOOST_TEST(refused == expected);
}
template <class... Policy>
void reducers(int expected) {
    refused = 0;
    (ask<Policy, un::Synchronous, un::Replicated, un::FiniteGuard, un::NoCompression, un::PlainSums>(), ...);
    (ask<Policy, un::Synchronous, un::Replicated, un::FiniteGuard, un::NoCompression, un::Reproducible>(), ...);
    (ask<Policy, un::Synchronous, un::Replicated, un::FiniteGuard, un::NoCompression, un::NarrowReproducible>(), ...);
    BOOST_TEST(refused == expected);
}
template <class... Policy>
void guards(int expected) {
    refused = 0;
    (ask<un::NativeReducer, un::Synchronous, un::Replicated, Policy, un::NoCompression, un::PlainSums>(), ...);
    BOOST_TEST(refused == expected);
}
template <class... Policy>
void compressions(int expected) {
    refused = 0;
    (ask<un::NativeReducer, un::Synchronous, un::Replicated, un::FiniteGuard, Policy, un::PlainSums>(), ...);
    BOOST_TEST(refused == expected);
}
template <class Sharding, class Reducer, class... Policy>
void compressions_where_slices_have_owners(int expected) {
    refused = 0;
    (ask<Reducer, un::Synchronous, Sharding, un::FiniteGuard, Policy, un::PlainSums>(), ...);
    BOOST_TEST(refused == expected);
}

struct Report {
    Report() = default;
    Report(const Report&) = delete;
    Report& operator=(const Report&) = delete;
    ~Report() {
        int all = 0;
        for (const auto& [reason, count] : unisono_matrix::counts().refused) all += count;
        std::printf("policy matrix on devices: %d combinations ran, on 1, 2 or 4 ranks, and on the host to compare; "
                    "%d were refused at compile time\n",
                    unisono_matrix::counts().ran, all);
        for (const auto& [reason, count] : unisono_matrix::counts().refused)
            std::printf("  %3d refused: %s\n", count, reason.c_str());
    }
};

} // namespace

BOOST_TEST_GLOBAL_FIXTURE(Report);

BOOST_AUTO_TEST_SUITE(device_refused)

BOOST_AUTO_TEST_CASE(each_policy) {
    reducers<un::NativeReducer, un::RingReducer, un::TreeReducer, un::HalvingDoublingReducer, un::AutomaticReducer,
             un::HierarchicalReducer, un::ParameterServerReducer>(0);
    guards<un::FiniteGuard, un::NoGuard>(0);
    guards<OwnGuard>(1);
    shardings<un::Replicated, un::StateSharding, unisono_matrix::EqualShards>(0);
    shardings<un::GradientSharding, un::ParameterSharding>(2);
    updates<un::Synchronous, unisono_matrix::OwnUpdate, un::LocalSteps, un::Diloco<>, un::StreamingDiloco<>>(0);
    updates<un::Gossip, un::Asynchronous, un::BoundedStaleness, un::DelayCompensated, un::Hogwild>(5);
    compressions<un::Bf16Wire, un::Fp16Wire, un::Int8Wire, un::Fp8Wire, un::OneBit, un::TopK, un::PowerSgd, un::Adasum>(
        0);
    compressions_where_slices_have_owners<un::StateSharding, un::NativeReducer, un::Bf16Wire, un::Fp16Wire>(0);
    compressions_where_slices_have_owners<un::StateSharding, un::NativeReducer, un::Int8Wire, un::Fp8Wire, un::OneBit,
                                          un::TopK, un::PowerSgd, un::Adasum>(6);
    compressions_where_slices_have_owners<un::Replicated, un::ParameterServerReducer, un::Int8Wire, un::Fp8Wire,
                                          un::OneBit, un::TopK, un::PowerSgd, un::Adasum>(6);
    BOOST_TEST(known == 21 + 3 + 5 + 10 + 8 + 2 + 6 + 6);
}

BOOST_AUTO_TEST_SUITE_END()

// A 16-bit model on a device, trained there in float, has the bits of MasterWeights on the host. No
// byte crosses the bus.
#include "on_device.hpp"

#include "support/folder.hpp"

#include <unisono/extensions/checkpoint/checkpoints.hpp>
#include <unisono/guard/clipping.hpp>
#include <unisono/guard/loss_scaling.hpp>
#include <unisono/master_weights.hpp>
#include <unisono/optimizer/adam.hpp>
#include <unisono/reproducible.hpp>
#include <unisono/sharding/sharding.hpp>
#include <unisono/update/averaging.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

namespace un = unisono;

namespace {

constexpr std::array<std::size_t, 4> sizes = {19, 1, 0, 44};
constexpr std::size_t count = 64;
constexpr int updates = 9;

/// Pulls each weight to a target, in 16 bits. Reports for some parameters that they are ready.
template <class Low>
struct Pulled {
    std::vector<std::vector<Low>> values, slopes;
    std::vector<std::span<Low>> spans, gradient_spans;

    explicit Pulled(int rank) {
        for (const std::size_t size : sizes) {
            values.emplace_back(size);
            slopes.emplace_back(size);
            for (std::size_t i = 0; i < size; ++i) // the trainer replaces them by rank 0's
                values.back()[i] = static_cast<Low>(1 + 0.01f * static_cast<float>(i) + static_cast<float>(rank));
            spans.push_back(values.back());
            gradient_spans.push_back(slopes.back());
        }
    }
    std::vector<std::span<Low>>& parameters() { return spans; }
    std::vector<std::span<Low>>& gradients() { return gradient_spans; }

    double operator()(const int& seed, un::Pass& pass) {
        pass.count_tokens(2);
        const auto scale = static_cast<float>(pass.loss_scale());
        double loss = 0;
        for (std::size_t p = spans.size(); p-- > 0;) {
            for (std::size_t i = 0; i < spans[p].size(); ++i) {
                const auto target = static_cast<float>(std::sin(seed + 0.37 * static_cast<double>(10 * p + i)));
                const float g = static_cast<float>(spans[p][i]) - target;
                gradient_spans[p][i] = static_cast<Low>(static_cast<float>(gradient_spans[p][i]) + g * scale);
                loss += static_cast<double>(g * g);
            }
            if (p != 1) pass.ready(p);
        }
        return loss;
    }
};

/// The result of one rank.
struct Told {
    std::vector<float> weights, low;
    un::UpdateReport last;
    bool owns = false;
};

template <class Low>
void widen(const std::vector<Low>& from, std::vector<float>& to) {
    for (const Low one : from) to.push_back(static_cast<float>(one));
}

/// `gap`: between the model's parameters on the device. `bytes`: to the host and to the device, in
/// all updates but the first.
template <class Low, class Transport, class... Policies>
std::vector<Told> trained(int ranks, std::size_t gap, std::array<std::size_t, 2>& bytes, const Policies&... policies) {
    std::vector<Told> told(static_cast<std::size_t>(ranks));
    un::run<Transport>(ranks, [&](auto& world) {
        Told& mine = told[static_cast<std::size_t>(world.rank())];
        Pulled<Low> model(world.rank());
        const auto with = [&](auto& master) {
            un::Trainer trainer{world, master, un::Buckets{.first_bytes = 8, .bytes = 100}, policies...};
            decltype(test::crossed_the_bus()) before;
            for (int update = 0; update < updates; ++update) {
                const int seed = 10 * update + world.rank();
                mine.last = world.rank() == 0 ? trainer.step(seed, seed + 100) : trainer.step(seed);
                if (update != 0) continue;
                un::barrier(world);
                before = test::crossed_the_bus();
                un::barrier(world);
            }
            un::barrier(world);
            if (world.rank() == 0)
                bytes = {test::crossed_the_bus().bytes_to_host - before.bytes_to_host,
                         test::crossed_the_bus().bytes_to_device - before.bytes_to_device};
            un::barrier(world);
            trainer.synchronise();
            trainer.verify_replicas();
            mine.owns = !trainer.state().owned().empty();
            trainer.visit_parameters({0, count}, [&](std::size_t, std::span<const float> values) {
                mine.weights.insert(mine.weights.end(), values.begin(), values.end());
            });
        };
        if constexpr (un::streaming_transport<Transport>) {
            test::OnDevice there(world, model, gap);
            un::MasterWeights master(world, there);
            with(master);
            widen(there.values(), mine.low);
        } else {
            un::MasterWeights master(model);
            with(master);
            for (const auto& one : model.values) widen(one, mine.low);
        }
    });
    return told;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

/// Bytes to the host: `bytes_an_update` for each rank, and also for each rank that owns a slice.
template <class Low, class... Policies>
void same_as_on_the_host(int ranks, std::size_t gap, std::array<std::size_t, 2> bytes_an_update,
                         const Policies&... policies) {
    const test::Clean clean;
    std::array<std::size_t, 2> none = {}, bytes = {};
    const std::vector<Told> host = trained<Low, un::InProcess>(ranks, gap, none, policies...);
    const std::vector<Told> device = trained<Low, test::Transport>(ranks, gap, bytes, policies...);
    std::size_t expected = 0;
    for (const Told& one : device) expected += bytes_an_update[0] + (one.owns ? bytes_an_update[1] : 0);
    if (test::bytes_are_counted) BOOST_TEST(bytes[0] == (updates - 1) * expected);
    BOOST_TEST(bytes[1] == 0u);
    BOOST_TEST(host[0].last.number > 4u);
    for (std::size_t rank = 0; rank < host.size(); ++rank) {
        const Told& one = device[rank];
        const Told& other = host[rank];
        BOOST_TEST(other.weights.size() == count);
        BOOST_TEST(same_bits(one.weights, other.weights), "weights of rank " << rank);
        BOOST_TEST(same_bits(one.low, other.low), "16 bits of rank " << rank);
        BOOST_TEST(!same_bits(one.low, one.weights)); // otherwise nothing was rounded
        BOOST_TEST(one.last.loss == other.last.loss);
        BOOST_TEST(one.last.number == other.last.number);
        BOOST_TEST(one.last.loss_scale == other.last.loss_scale);
        BOOST_TEST(one.last.gradient_norm == other.last.gradient_norm);
    }
}

/// The state of rank 1 after four updates, a checkpoint, and four more; or after only the last
/// four.
template <class Transport>
Told saved_or_resumed(const std::string& folder, bool resumes) {
    Told told;
    un::run<Transport>(2, [&](auto& world) {
        Pulled<un::bfloat16> model(world.rank());
        const auto with = [&](auto& master) {
            un::Trainer trainer{world, master, un::StateSharding{}, un::Adam{.learning_rate = 0.1}};
            un::Checkpoints checkpoints(folder);
            const auto steps = [&](int first) {
                for (int i = first; i < first + 4; ++i) trainer.step(10 * i + world.rank());
            };
            if (resumes) BOOST_TEST(checkpoints.resume(trainer).has_value());
            else steps(0), checkpoints.save(trainer);
            steps(4);
            trainer.verify_replicas();
            if (world.rank() == 0) return;
            trainer.visit_parameters({0, count}, [&](std::size_t, std::span<const float> values) {
                told.weights.insert(told.weights.end(), values.begin(), values.end());
            });
        };
        if constexpr (un::streaming_transport<Transport>) {
            test::OnDevice there(world, model, 1);
            un::MasterWeights master(world, there);
            with(master);
            if (world.rank() == 1) widen(there.values(), told.low);
        } else {
            un::MasterWeights master(model);
            with(master);
            if (world.rank() == 1)
                for (const auto& one : model.values) widen(one, told.low);
        }
    });
    return told;
}

} // namespace

BOOST_AUTO_TEST_SUITE(device_master_weights)

BOOST_AUTO_TEST_CASE(sums_of_numbers) {
    // The scale is too large at first: gradients overflow, and all ranks skip the update.
    const un::LossScaling scaling{.initial = 0x1p17, .growth_interval = 3};
    const un::ClipByValue clips{.limit = 0.4};
    // Where the guard found an offence, and whether a value is large.
    constexpr std::array<std::size_t, 2> bytes = {16, 0};
    for (const int ranks : {1, 2})
        for (const std::size_t gap : {0u, 1u})
            same_as_on_the_host<un::float16>(ranks, gap, bytes, scaling, clips, un::StateSharding{}, un::AdamW{});
}

BOOST_AUTO_TEST_CASE(meetings_of_ranks_that_go_their_own_ways) {
    constexpr std::array<std::size_t, 2> bytes = {16, 0};
    same_as_on_the_host<un::float16>(2, 1, bytes, un::LocalSteps{.steps = 3, .warm_up = 1});
}

BOOST_AUTO_TEST_CASE(sums_on_grids) {
    // The values that fit the grids, and squares for the norm.
    constexpr std::array<std::size_t, 2> bytes = {8 * sizes.size(), 32};
    for (const int ranks : {1, 4})
        same_as_on_the_host<un::bfloat16>(ranks, 1, bytes, un::Reproducible{}, un::ClipByNorm{.max_norm = 0.5},
                                          un::StateSharding{}, un::Sgd{.learning_rate = 0.1, .momentum = 0.9});
}

BOOST_AUTO_TEST_CASE(checkpoints_from_and_to_the_host) {
    const test::Clean clean;
    const unisono_test::Folder folder;
    const Told host = saved_or_resumed<un::InProcess>(folder / "host", false);
    BOOST_TEST(host.weights.size() == count);
    for (const Told& other : {saved_or_resumed<test::Transport>(folder / "device", false),
                              saved_or_resumed<test::Transport>(folder / "host", true),
                              saved_or_resumed<un::InProcess>(folder / "device", true)}) {
        BOOST_TEST(same_bits(other.weights, host.weights));
        BOOST_TEST(same_bits(other.low, host.low));
    }
}

BOOST_AUTO_TEST_CASE(outside_of_a_trainer_the_copy_is_made_before_each_call) {
    const test::Clean clean;
    un::run<test::Transport>(1, [&](auto& world) {
        Pulled<un::bfloat16> model(0);
        test::OnDevice there(world, model, 1);
        un::MasterWeights master(world, there);
        const std::vector<float> thirds(sizes[0], 1.0f / 3);
        const auto uploaded = test::upload(world, thirds);
        un::detail::check_cuda(cudaStreamSynchronize(there.stream()), "cudaStreamSynchronize");
        un::detail::check_cuda(cudaMemcpy(master.parameters()[0].data(), uploaded.data(), sizes[0] * sizeof(float),
                                          cudaMemcpyDeviceToDevice),
                               "cudaMemcpy");
        BOOST_TEST(static_cast<float>(there.values()[0]) == 1.0f);
        un::Pass pass(un::PassFacts{}, nullptr, nullptr);
        const int seed = 0;
        master(seed, pass);
        const std::vector<un::bfloat16> low = there.values();
        BOOST_TEST(static_cast<float>(low[0]) == static_cast<float>(static_cast<un::bfloat16>(1.0f / 3)));
        BOOST_TEST(static_cast<float>(low[sizes[0]]) == 1.0f);
        const std::vector<float> slopes = test::download(master.gradients()[0]);
        BOOST_TEST(slopes[0] == static_cast<float>(low[0])); // its target is sin(0)
        for (const auto gradient : there.gradients())
            for (const un::bfloat16 one : test::download(gradient)) BOOST_TEST(static_cast<float>(one) == 0.0f);
    });
}

BOOST_AUTO_TEST_SUITE_END()

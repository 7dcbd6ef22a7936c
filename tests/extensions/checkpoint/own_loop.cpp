// A 16-bit model without names, in a loop of the user's own.
#include "support/fails.hpp"
#include "support/refusal.hpp"
#include "training.hpp"

#include "unisono/extensions/checkpoint/checkpoints.hpp"
#include "unisono/extensions/compression/cast.hpp"
#include "unisono/extensions/compression/one_bit.hpp"
#include "unisono/extensions/compression/power_sgd.hpp"
#include "unisono/extensions/compression/top_k.hpp"
#include "unisono/extensions/master_weights/master_weights.hpp"
#include "unisono/trainer/hashes.hpp"
#include "unisono/trainer/reproducible.hpp"
#include "unisono/unisono.hpp"

#include <boost/test/unit_test.hpp>

#include <array>
#include <span>

namespace un = unisono;
using namespace unisono_test;

namespace {

using Half = un::bfloat16;
constexpr std::size_t width = 40;

struct Linear {
    std::vector<Half> weights = std::vector<Half>(width, Half(0.1f)), slopes = std::vector<Half>(width),
                      seen = std::vector<Half>(2);

    std::array<std::span<Half>, 2> parameters() { return {std::span(weights).first(7), std::span(weights).subspan(7)}; }
    std::array<std::span<Half>, 2> gradients() { return {std::span(slopes).first(7), std::span(slopes).subspan(7)}; }
    [[nodiscard]] std::array<std::array<std::size_t, 2>, 2> parameter_shapes() const { return {{{1, 7}, {3, 11}}}; }
    std::span<Half> buffers() { return seen; }

    double operator()(const un::RowBatch<float>& batch, un::Pass& pass) {
        double loss = 0;
        for (std::size_t row = 0; row < batch.rows(); ++row) {
            const auto x = batch.row(row);
            // Of the update and the epoch that the loop has set.
            const float noise = pass.random(row).uniform();
            float y = noise - 1;
            for (std::size_t i = 0; i < width; ++i) y += static_cast<float>(weights[i]) * x[i];
            loss += static_cast<double>(y * y);
            for (std::size_t i = 0; i < width; ++i) slopes[i] = Half(static_cast<float>(slopes[i]) + 0.05f * y * x[i]);
            seen[0] = Half(static_cast<float>(seen[0]) * 0.5f + y);
        }
        return loss;
    }
};

struct End {
    un::StateHash hash;
    std::uint64_t updates = 0;
    float seen = 0;
    std::string note;
};

/// Resumes from the newest checkpoint, saves every third update, and stops after the given number
/// of updates.
std::vector<End> loop(const std::string& folder, int most) {
    std::vector<End> ends(2);
    const std::vector<float> values = un::torch_rand(3, 24 * width);
    const un::RowData data(values, width);
    un::run<un::InProcess>(2, [&](auto& world) {
        Linear low;
        un::MasterWeights model(low);
        un::Trainer trainer{world, model, un::StateSharding{}, un::Sgd{.learning_rate = 0.01, .momentum = 0.9}};
        un::Checkpoints checkpoints(folder, {.background = true});
        const auto from = checkpoints.resume(trainer);
        un::Position at = from ? from->position : un::Position{};
        End& end = ends[static_cast<std::size_t>(world.rank())];
        if (from) end.note = from->note;
        const un::DistributedSampler sampler{.seed = 3};
        for (int done = 0; at.epoch.number() < 3;) {
            trainer.set_epoch(at.epoch);
            auto stream =
                sampler.stream(un::shape_of_rank(sampler, 24, 3, world.size(), world.rank()), at.epoch, at.samples);
            while (!stream.done() && done < most) {
                const un::MicroBatch micro = stream.next();
                const auto report = trainer.step(data.batch(micro.samples));
                at = micro.resume;
                ++done;
                if (report.number % 3 == 0)
                    checkpoints.save(trainer, {.position = at, .note = un::concat({"after ", report.number})});
            }
            if (done == most) break;
            at = {at.epoch.next(), 0};
        }
        checkpoints.wait(trainer);
        end.hash = un::state_hash(trainer);
        end.updates = trainer.updates();
        end.seen = static_cast<float>(low.seen[0]);
    });
    return ends;
}

/// y = w . x in one matrix, whose targets are 1.
struct Square {
    std::vector<float> weights = std::vector<float>(64, 0.1f), slopes = std::vector<float>(64);

    std::span<float> parameters() { return weights; }
    std::span<float> gradients() { return slopes; }
    [[nodiscard]] std::array<std::array<std::size_t, 2>, 1> parameter_shapes() const { return {{{8, 8}}}; }

    double operator()(const un::RowBatch<float>& batch, un::Pass& pass) {
        const auto scale = static_cast<float>(pass.loss_scale());
        double loss = 0;
        for (std::size_t row = 0; row < batch.rows(); ++row) {
            const auto x = batch.row(row);
            float y = -1;
            for (std::size_t i = 0; i < 64; ++i) y += weights[i] * x[i];
            for (std::size_t i = 0; i < 64; ++i) slopes[i] += scale * y * x[i];
            loss += static_cast<double>(y * y);
        }
        return loss;
    }
};

/// Rank 0's state after `before` updates, `resume` if there is a checkpoint, and `after` more.
/// `save`: whether it then saves.
template <class Policy>
un::StateHash steps(const std::string& folder, int before, int after, bool save, const Policy& policy) {
    un::StateHash hash;
    const std::vector<float> values = un::torch_rand(3, 16 * 64);
    const un::RowData data(values, 64);
    un::run<un::InProcess>(2, [&](auto& world) {
        Square model;
        if (before > 0) model.weights.assign(64, 1000); // with gradients that leave other grids
        un::Trainer trainer{world, model, policy, un::Sgd{.learning_rate = 0.001}};
        un::Checkpoints checkpoints(folder);
        const auto step = [&](int update) {
            trainer.step(data.batch(std::array{static_cast<std::size_t>(2 * update + world.rank())}));
        };
        for (int i = 0; i < before; ++i) step(i);
        checkpoints.resume(trainer);
        for (int i = 0; i < after; ++i) step(i);
        if (save) checkpoints.save(trainer);
        const un::StateHash found = un::state_hash(trainer);
        if (world.rank() == 0) hash = found;
    });
    return hash;
}

} // namespace

BOOST_AUTO_TEST_SUITE(checkpoint_own_loop)

BOOST_AUTO_TEST_CASE(goes_on_where_it_stood) {
    const Folder whole, cut;
    const auto expected = loop(whole.path(), 1000);
    BOOST_TEST(expected[0].updates == 12u);
    // A checkpoint after 6, in the middle of an epoch.
    BOOST_TEST(loop(cut.path(), 8)[0].updates == 8u);
    const auto second = loop(cut.path(), 4); // from 6 to 10
    BOOST_TEST(second[1].note == "after 6");
    BOOST_TEST(second[0].updates == 10u);
    const auto ends = loop(cut.path(), 1000); // from 9
    BOOST_TEST(ends[1].note == "after 9");
    for (std::size_t rank = 0; rank < 2; ++rank) {
        BOOST_TEST(ends[rank].updates == 12u);
        BOOST_TEST((ends[rank].hash == expected[rank].hash));
        BOOST_TEST((ends[rank].hash != second[rank].hash));
    }
    BOOST_TEST(ends[0].seen == expected[0].seen); // rank 0's buffers
    // The metadata in the files.
    const std::string folder = cut.path() + "/checkpoint-000004-update-12/";
    const un::TensorFile first(folder + "model-00001-of-00002.safetensors");
    const un::TensorFile second_file(folder + "model-00002-of-00002.safetensors");
    BOOST_TEST_REQUIRE(first.find("parameter_0") != nullptr);
    BOOST_TEST(first.find("parameter_0")->type == "F32");
    BOOST_TEST(first.find("parameter_0")->shape == (std::vector<std::uint64_t>{1, 7}));
    BOOST_TEST(first.find("buffer_0")->type == "BF16");
    BOOST_TEST_REQUIRE(second_file.find("parameter_1") != nullptr);
    BOOST_TEST(second_file.find("parameter_1")->shape == (std::vector<std::uint64_t>{3, 11}));
}

BOOST_AUTO_TEST_CASE(what_resume_would_refuse_is_not_saved) {
    const Folder folder;
    std::array<std::string, 2> below, notes;
    un::run<un::InProcess>(2, [&](auto& world) {
        const auto rank = static_cast<std::size_t>(world.rank());
        Square model;
        un::Trainer trainer{world, model, un::Sgd{}};
        un::Checkpoints checkpoints(folder.path(), {.keep = 1});
        checkpoints.save(trainer, {.note = "good"});
        below[rank] = test::error_text([&] {
            checkpoints.save(trainer, {.position = un::Position{un::Epoch{1}, -8}});
        });
        notes[rank] = checkpoints.resume(trainer)->note;
    });
    for (std::size_t rank = 0; rank < 2; ++rank) {
        test::says(below[rank], "Checkpoints::save: found world 2, epoch 1, samples -8");
        BOOST_TEST(notes[rank] == "good");
    }
}

BOOST_AUTO_TEST_CASE(another_optimizer_with_the_same_arrays_is_refused) {
    const Folder folder;
    std::string refused;
    un::run<un::InProcess>(1, [&](auto& world) {
        Square model;
        un::Checkpoints checkpoints(folder.path());
        un::Trainer adam{world, model, un::Adam{}};
        checkpoints.save(adam);
        un::Trainer adamw{world, model, un::AdamW{}};
        refused = test::error_text([&] { checkpoints.resume(adamw); });
    });
    test::says(refused, "found the optimizer's state of Adam [exp_avg, exp_avg_sq]; expected that of AdamW [");
}

BOOST_AUTO_TEST_CASE(fit_refuses_another_position_while_it_runs) {
    const Folder folder;
    std::array<std::string, 2> resumed, restored, after;
    std::array<std::int64_t, 2> samples = {};
    const std::vector<float> values = un::torch_rand(3, 16 * 64);
    const un::RowData data(values, 64);
    un::run<un::InProcess>(2, [&](auto& world) {
        const auto rank = static_cast<std::size_t>(world.rank());
        Square model;
        un::Trainer trainer{world, model, un::Sgd{.learning_rate = 0.001}};
        un::Checkpoints checkpoints(folder.path());
        trainer.fit(data, {.batch_size = 2, .progress = false}, [&](const un::UpdateReport& report) {
            if (report.number == 1) checkpoints.save(trainer);
            if (report.number != 3) return true;
            resumed[rank] = test::error_text([&] { checkpoints.resume(trainer); });
            restored[rank] = test::error_text([&] { trainer.restore({}); });
            samples[rank] = trainer.position().samples;
            return false;
        });
        after[rank] = test::error_text([&] { checkpoints.resume(trainer); });
    });
    for (std::size_t rank = 0; rank < 2; ++rank) {
        test::says(resumed[rank], "resume was called in the function given to fit");
        test::says(restored[rank], "restore was called in");
        BOOST_TEST(samples[rank] == 12);
        BOOST_TEST(after[rank] == "");
    }
}

/// Two ranks save in the background. Rank 0's part is complete long before rank 1's.
BOOST_AUTO_TEST_CASE(patience_without_end) {
    struct Uneven {
        std::vector<float> weights = std::vector<float>(std::size_t{1} << 22), slopes = weights;
        std::array<std::span<float>, 2> parts(std::vector<float>& all) const {
            return {std::span(all).first(8), std::span(all).subspan(8)};
        }
        std::array<std::span<float>, 2> parameters() { return parts(weights); }
        std::array<std::span<float>, 2> gradients() { return parts(slopes); }
        double operator()(const un::RowBatch<float>&, un::Pass&) { return 0; }
    };
    const Folder folder;
    std::array<std::string, 2> failed;
    un::run<un::InProcess>(2, [&](auto& world) {
        Uneven model;
        un::Trainer trainer{world, model, un::Sgd{}};
        un::Checkpoints checkpoints(folder.path(), {.background = true, .patience = std::chrono::nanoseconds::max()});
        failed[static_cast<std::size_t>(world.rank())] = test::error_text([&] {
            for (int i = 0; i < 3; ++i) checkpoints.save(trainer);
            checkpoints.wait(trainer);
        });
    });
    for (const std::string& one : failed) BOOST_TEST(one == "");
}

/// A checkpoint that cannot be examined may exist. It is neither missing nor an incomplete one that
/// may be removed.
BOOST_AUTO_TEST_CASE(a_folder_whose_name_is_too_long_for_what_is_in_it) {
    const Folder folder;
    std::string path = folder.path();
    while (path.size() < 3900) path += "/" + std::string(150, 'x');
    path += "/" + std::string(4066 - path.size(), 'y');
    un::Group<un::InProcess> world;
    Linear low;
    un::MasterWeights model(low);
    un::Trainer trainer{world, model, un::Sgd{}};
    un::Checkpoints checkpoints(path);
    for (int i = 0; i < 2; ++i) {
        const std::string found = test::error_text([&] { checkpoints.save(trainer); });
        test::says(found, "cannot examine '" + path);
    }
}

/// A sampler of the program: the last sample comes first.
struct Backwards {
    static constexpr std::string_view name = "backwards";
    static constexpr un::Family family = un::Family::sampler;
    friend bool operator==(const Backwards&, const Backwards&) = default;

    [[nodiscard]] static std::int64_t replicas_per_rank() { return 1; }
    [[nodiscard]] static auto stream(const un::SamplerShape& shape, un::Epoch epoch, std::int64_t consumed = 0) {
        return Stream{un::SequentialSampler{}.stream(shape, epoch, consumed), shape.data_size, {}};
    }
    struct Stream : un::SampleStream {
        std::int64_t size = 0;
        std::vector<std::size_t> indices = {};
        un::MicroBatch next() {
            un::MicroBatch micro = un::SampleStream::next();
            indices.clear();
            for (const std::size_t one : micro.samples) indices.push_back(static_cast<std::size_t>(size) - 1 - one);
            micro.samples = indices;
            return micro;
        }
    };
};

/// Trains with a sampler, and stops at the second update of an epoch. Returns the error text of
/// `resume`, if any.
template <class Sampler>
std::string by_sampler(const std::string& folder, bool saves, std::uint64_t updates, const Sampler& sampler) {
    const std::vector<float> values = un::torch_rand(3, 24 * width);
    const un::RowData data(values, width);
    un::Group<un::InProcess> world;
    Linear low;
    un::MasterWeights model(low);
    un::Trainer trainer{world, model, sampler, un::Sgd{.learning_rate = 0.001}};
    un::Checkpoints checkpoints(folder);
    try {
        if (!saves) checkpoints.resume(trainer);
        else {
            trainer.fit(data, {.batch_size = 6, .progress = false},
                        [&](const un::UpdateReport& report) { return report.number < updates; });
            checkpoints.save(trainer);
        }
    } catch (const un::error& refused) {
        BOOST_TEST((refused.code() == un::ErrorCode::bad_input));
        return refused.what();
    }
    return {};
}

BOOST_AUTO_TEST_CASE(a_sampler_of_ones_own_has_an_order_of_its_own) {
    const un::DistributedSampler stored{.shuffle = false};
    for (const bool at_end : {false, true}) { // the order of the next epoch may be chosen there
        const Folder own, others;
        const std::uint64_t updates = at_end ? 4 : 2;
        by_sampler(own.path(), true, updates, Backwards{});
        by_sampler(others.path(), true, updates, stored);
        BOOST_TEST(by_sampler(own.path(), false, 0, Backwards{}) == "");
        BOOST_TEST(by_sampler(others.path(), false, 0, un::SequentialSampler{}) == "");
        BOOST_TEST(by_sampler(others.path(), false, 0, un::ScatterSampler{.shuffle = false}) == "");
        const std::string found = by_sampler(own.path(), false, 0, stored),
                          other = by_sampler(others.path(), false, 0, Backwards{});
        BOOST_TEST((found.find("in the order of backwards (seed 0, as stored)") != found.npos) == !at_end, found);
        BOOST_TEST((other.find("expected the order of this trainer's backwards") != other.npos) == !at_end, other);
        if (at_end) BOOST_TEST(found + other == "");
    }
}

BOOST_AUTO_TEST_CASE(a_used_trainer_goes_on_like_a_new_one) {
    const auto same = [](const char* what, const auto& saved, const auto& resumed) {
        const Folder folder;
        steps(folder.path(), 0, 2, true, saved);
        const un::StateHash fresh = steps(folder.path(), 0, 3, false, resumed);
        BOOST_TEST((fresh == steps(folder.path(), 0, 3, false, resumed)), what);
        BOOST_TEST((fresh == steps(folder.path(), 5, 3, false, resumed)), what);
    };
    same("TopK", un::TopK{.fraction = 0.25}, un::TopK{.fraction = 0.25});
    same("OneBit", un::OneBit{.warm_up = 4, .block = 4}, un::OneBit{.warm_up = 4, .block = 4});
    same("PowerSgd", un::PowerSgd{.rank = 1, .warm_up = 4}, un::PowerSgd{.rank = 1, .warm_up = 4});
    same("PowerSgd", un::PowerSgd{.rank = 1}, un::PowerSgd{.rank = 1});
    same("CastWire", un::Bf16Wire{}, un::Bf16Wire{});
    // The checkpoint has no loss scale, or no grids.
    same("LossScaling", un::NoLossScaling{}, un::LossScaling{.initial = 1000, .growth = 1.7, .growth_interval = 1});
    same("Reproducible", un::PlainSums{}, un::Reproducible{});
}

// Each trainer has its folder, and rank 1 calls them in the other order.
BOOST_AUTO_TEST_CASE(two_trainers_saved_or_resumed_in_another_order) {
    struct One {
        std::vector<float> w = {1}, g = {0};
        std::span<float> parameters() { return w; }
        std::span<float> gradients() { return g; }
        double operator()(int, un::Pass&) { return 0; }
    };
    for (const bool save : {true, false}) {
        const Folder first, second;
        const std::string call = save ? "Checkpoints::save" : "Checkpoints::resume";
        test::fails({call + " in trainer 1", call + " in trainer 2"}, [&] {
            un::run<un::InProcess>(2, [&](auto& world) {
                One a, b;
                un::Trainer one{world, a}, other{world, b};
                un::Checkpoints of_one(first.path()), of_other(second.path());
                of_one.save(one);
                of_other.save(other);
                const auto use = [&](auto& checkpoints, auto& trainer) {
                    if (save) checkpoints.save(trainer);
                    else checkpoints.resume(trainer);
                };
                if (world.rank() == 1) use(of_other, other);
                use(of_one, one);
                if (world.rank() == 0) use(of_other, other);
            });
        });
    }
}

BOOST_AUTO_TEST_SUITE_END()

// A model in parts, stopped and resumed on other parts and other replicas of them, has the bits of
// one rank that never stopped.
#include "training.hpp"

#include "../../support/folder.hpp"
#include "support/owners_or_all.hpp"

#include <unisono/extensions/checkpoint/checkpoints.hpp>
#include <unisono/extensions/master_weights/master_weights.hpp>
#include <unisono/unisono.hpp>

#include <boost/test/unit_test.hpp>

#include <functional>
#include <string>

using namespace unisono_test;
using test::Group;

namespace {

struct Run {
    int data = 1, stages = 1;
    AnySchedule schedule = {};
    bool sharded = false;
    std::string folder = {};
    bool resume = false;
    std::uint64_t stop_after = 0; ///< update at which a checkpoint is saved
    bool background = false;
    bool processes = false;
    int layers = 16;
};
struct End {
    std::array<float, parameter_count> weights = {};
    std::uint64_t updates = 0, from = 0;
    double loss = 0; ///< of the last update
    int saved_by = 0;
    char refused[600] = {};
};

constexpr AnySchedule interleaved{AnySchedule::interleaved, 2};

/// Two replicas of one micro-batch per update, on one rank or two. A sum of two numbers does not
/// depend on their order.
void run_rank(Group& world, const Run& how, End& out) {
    const Samples<float> samples(40);
    un::Mesh mesh{world, {{"data", how.data}, {"pipeline", how.stages}}};
    un::Layers<float> network;
    for (unsigned l = 0; l < static_cast<unsigned>(how.layers) / 2; ++l) {
        const std::size_t in = l == 0 ? width : hidden, to = l == 7 ? results : hidden;
        network.add(Dense<float>{in, to, l}).add(Squash<float>{to, l % 2 == 0});
    }
    if (how.layers != 16) network.add(Dense<float>{hidden, results, 9});
    un::LayerPlacement placement = even_placement(static_cast<std::size_t>(how.stages) * how.schedule.chunks);
    if (how.layers != 16) placement = {};
    un::PipelineModel model{mesh.axis("pipeline"), std::move(network), Distance<float>{results}, how.schedule,
                            un::PipelineOptions{.placement = placement}};
    un::Trainer trainer{mesh.axis("data"),
                        model,
                        un::Replicas{.count = 2},
                        un::DistributedSampler{.shuffle = true, .seed = 2},
                        test::OwnersOrAll{.sharded = how.sharded},
                        un::Adam{.learning_rate = 0.01}};
    un::Checkpoints checkpoints(how.folder.empty() ? "/nowhere" : how.folder, {.background = how.background});
    if (how.resume) {
        const auto from = checkpoints.resume(trainer, mesh.world());
        if (!from) throw std::runtime_error("nothing to resume from");
        out.from = from->updates;
        out.saved_by = from->world;
    }
    trainer.fit(samples.data(),
                {.epochs = 2 - trainer.position().epoch.number(), .batch_size = 6, .seed = 5, .progress = false},
                [&](const un::UpdateReport& report) {
                    out.loss = report.loss;
                    if (report.number != how.stop_after) return true;
                    checkpoints.save(trainer, mesh.world(), {.note = "stopped"});
                    return false;
                });
    checkpoints.wait(trainer, mesh.world());
    trainer.verify_replicas();
    out.updates = trainer.updates();
    for (std::size_t p = 0; p < model.parameters().size(); ++p) {
        const std::size_t layer = model.places()[p]; // among those with parameters
        const std::size_t at = layer == 0 ? 0 : (width + 1) * hidden + (layer - 1) * (hidden + 1) * hidden;
        std::copy(model.parameters()[p].begin(), model.parameters()[p].end(),
                  out.weights.begin() + static_cast<std::ptrdiff_t>(at));
    }
}

/// Each rank's result. The first rank of a replica has the weights of all its parts.
std::vector<End> run(const Run& how) {
    test::Shared<std::array<End, 8>> ends;
    const int ranks = how.data * how.stages;
    test::any_on_processes = how.processes && !test::under_thread_sanitizer;
    try {
        test::run(
            ranks,
            [&](Group& world) {
                End& mine = (*ends)[static_cast<std::size_t>(world.rank())];
                try {
                    run_rank(world, how, mine);
                } catch (const un::error& failed) {
                    std::string(failed.what()).copy(mine.refused, sizeof mine.refused - 1);
                }
            },
            test::limit);
    } catch (const un::error& failed) {
        BOOST_TEST(false, failed.what());
    }
    test::any_on_processes = false;
    std::vector<End> all(ends->begin(), ends->begin() + ranks);
    for (int rank = 0; rank < ranks; ++rank) {
        if (rank % how.stages == 0) continue;
        End& whole = all[static_cast<std::size_t>(rank / how.stages * how.stages)];
        for (std::size_t i = 0; i < parameter_count; ++i)
            whole.weights[i] += all[static_cast<std::size_t>(rank)].weights[i]; // one is zero
    }
    return all;
}

const End& undisturbed() {
    static const End one = run({})[0];
    return one;
}

std::string text(const Run& how) {
    return std::to_string(how.data) + " x " + std::to_string(how.stages) + " ranks, schedule " +
           std::to_string(how.schedule.kind) + (how.sharded ? ", sharded" : "");
}

void ends_alike(const Run& how) {
    BOOST_TEST_CONTEXT("resumed on " << text(how)) {
        const auto all = run(how);
        for (const End& one : all) {
            BOOST_TEST(std::string(one.refused) == "");
            BOOST_TEST(one.updates == undisturbed().updates);
            BOOST_TEST(one.loss == undisturbed().loss);
            if (how.resume) BOOST_TEST(one.from == 3u);
        }
        for (int replica = 0; replica < how.data; ++replica)
            BOOST_TEST((all[static_cast<std::size_t>(replica * how.stages)].weights == undisturbed().weights));
    }
}

const std::vector<Run>& ways() {
    static const std::vector<Run> all = {{.data = 1, .stages = 1},
                                         {.data = 1, .stages = 2},
                                         {.data = 2, .stages = 1, .sharded = true},
                                         {.data = 1, .stages = 4, .schedule = {AnySchedule::gpipe}},
                                         {.data = 2, .stages = 2, .sharded = true},
                                         {.data = 1, .stages = 2, .schedule = interleaved},
                                         {.data = 2, .stages = 4}};
    return all;
}

void resumes_on_any_stages(std::size_t before) {
    const Folder folder;
    Run saving = ways()[before];
    saving.folder = folder.path();
    saving.stop_after = 3; // within an epoch
    saving.background = before % 2 == 1;
    BOOST_TEST_CONTEXT("saved on " << text(saving)) {
        for (const End& one : run(saving)) BOOST_TEST(std::string(one.refused) == "");
        for (Run how : ways()) {
            how.folder = folder.path();
            how.resume = true;
            ends_alike(how);
        }
    }
}

/// y = w x, in 16 bits.
struct Scales {
    float first;

    [[nodiscard]] static std::size_t inputs() { return width; }
    [[nodiscard]] static std::size_t outputs() { return width; }
    [[nodiscard]] static std::size_t parameters() { return width; }
    void initialise(std::span<un::bfloat16> values) const { std::fill(values.begin(), values.end(), to(first)); }
    static void forward(un::LayerForward<un::bfloat16>& call) {
        for (std::size_t i = 0; i < call.output.size(); ++i)
            call.output[i] = to(from(call.parameters[i % width]) * from(call.input[i]));
    }
    static void backward(un::LayerBackward<un::bfloat16>& call) {
        for (std::size_t i = 0; i < call.output_gradient.size(); ++i) {
            const float slope = from(call.output_gradient[i]);
            un::bfloat16& sum = call.gradient[i % width];
            sum = to(from(sum) + slope * from(call.input[i]));
            if (!call.input_gradient.empty()) call.input_gradient[i] = to(slope * from(call.parameters[i % width]));
        }
    }
    static float from(un::bfloat16 x) { return static_cast<float>(x); }
    static un::bfloat16 to(float x) { return static_cast<un::bfloat16>(x); }
};
struct HalfSquare {
    template <class Batch>
    double operator()(std::span<const un::bfloat16> outputs, const Batch&, std::span<un::bfloat16> slopes) const {
        std::copy(outputs.begin(), outputs.end(), slopes.begin());
        double loss = 0;
        for (const un::bfloat16 one : outputs) loss += 0.5 * Scales::from(one) * Scales::from(one);
        return loss;
    }
};

/// The float weights of four layers on the given number of stages, after updates up to `last`:
/// those of rank 0 alone, or the sum of all.
std::array<float, 4 * width> weights_of_16_bits(int stages, const std::string& folder, bool saves, std::uint64_t last) {
    std::vector<un::bfloat16> values(8 * width, Scales::to(0.75f));
    const un::RowData<un::bfloat16> data(values, width);
    std::array<float, 4 * width> weights = {};
    test::run(
        stages,
        [&](Group& world) {
            un::Mesh mesh{world, {{"data", 1}, {"pipeline", stages}}};
            un::Layers<un::bfloat16> network;
            for (const float first : {0.9f, 1.1f, 0.8f, 1.2f}) network.add(Scales{first});
            un::PipelineModel model{mesh.axis("pipeline"), std::move(network), HalfSquare{}};
            un::MasterWeights master(model);
            un::Trainer trainer{mesh.axis("data"), master, un::Adam{.learning_rate = 0.03}};
            un::Checkpoints checkpoints(folder);
            if (!saves) checkpoints.resume(trainer, mesh.world());
            while (trainer.updates() < last)
                trainer.fit(data, {.batch_size = 4, .progress = false},
                            [&](const un::UpdateReport& report) { return report.number < last; });
            if (saves) checkpoints.save(trainer, mesh.world());
            std::size_t p = 0;
            for (const std::span<float> one : master.parameters())
                std::copy(one.begin(), one.end(),
                          weights.begin() + static_cast<std::ptrdiff_t>(model.places()[p++] * width));
        },
        test::limit);
    return weights;
}

} // namespace

BOOST_AUTO_TEST_SUITE(pipeline_checkpoints)

BOOST_AUTO_TEST_CASE(undisturbed_trainings_are_alike) {
    BOOST_TEST(undisturbed().updates == 8u);
    BOOST_TEST(std::string(undisturbed().refused) == "");
    for (const Run& how : ways()) ends_alike(how);
}

BOOST_AUTO_TEST_CASE(saved_on_one_rank) { resumes_on_any_stages(0); }
BOOST_AUTO_TEST_CASE(saved_on_two_stages) { resumes_on_any_stages(1); }
BOOST_AUTO_TEST_CASE(saved_on_two_replicas_of_two_stages) { resumes_on_any_stages(4); }
BOOST_AUTO_TEST_CASE(saved_on_two_replicas) { resumes_on_any_stages(2); }
BOOST_AUTO_TEST_CASE(saved_on_four_stages) { resumes_on_any_stages(3); }
BOOST_AUTO_TEST_CASE(saved_on_two_stages_of_two_chunks) { resumes_on_any_stages(5); }
BOOST_AUTO_TEST_CASE(saved_on_two_replicas_of_four_stages) { resumes_on_any_stages(6); }

BOOST_AUTO_TEST_CASE(on_processes_too) {
    const Folder folder;
    const Run saving{
        .data = 2, .stages = 2, .sharded = true, .folder = folder.path(), .stop_after = 3, .processes = true};
    for (const End& one : run(saving)) BOOST_TEST(std::string(one.refused) == "");
    ends_alike({.data = 1, .stages = 4, .folder = folder.path(), .resume = true, .processes = true});
    ends_alike({.folder = folder.path(), .resume = true});
}

BOOST_AUTO_TEST_CASE(master_weights_of_a_split_model) {
    const Folder folder, other;
    const auto undisturbed_weights = weights_of_16_bits(1, other.path(), true, 9);
    for (const int before : {2, 1}) {
        const auto saved = weights_of_16_bits(before, folder.path(), true, 5);
        for (const int stages : {1, 2, 4}) {
            BOOST_TEST_CONTEXT("saved on " << before << " stages, resumed on " << stages) {
                BOOST_TEST((weights_of_16_bits(stages, folder.path(), false, 5) == saved));
                BOOST_TEST((weights_of_16_bits(stages, folder.path(), false, 9) == undisturbed_weights));
            }
        }
    }
}

BOOST_AUTO_TEST_CASE(other_layers_are_refused_on_all) {
    const Folder folder;
    run({.stages = 2, .folder = folder.path(), .stop_after = 3});
    for (const End& one : run({.stages = 2, .folder = folder.path(), .resume = true, .layers = 12}))
        BOOST_TEST(std::string(one.refused).find("found 8 parameters; expected 7") != std::string::npos, one.refused);
}

BOOST_AUTO_TEST_CASE(who_does_not_give_all_ranks_is_told) {
    const Folder folder;
    test::on_ranks(4, [&](Group& world, test::Findings& findings) {
        un::Mesh mesh{world, {{"data", 2}, {"pipeline", 2}}};
        un::PipelineModel model{mesh.axis("pipeline"), layers<float>(), Distance<float>{results}};
        un::Trainer trainer{mesh.axis("data"), model, un::Adam{}};
        un::Checkpoints checkpoints(folder.path());
        try {
            checkpoints.save(trainer); // along the data axis alone
            findings.expect(false, "saved half a model");
        } catch (const un::error& refused) {
            findings.expect(refused.code() == un::ErrorCode::refused &&
                                std::string(refused.what()).find("as save(trainer, mesh.world())") != std::string::npos,
                            refused.what());
        }
        checkpoints.save(trainer, mesh.world()); // the groups remain usable
        findings.expect(checkpoints.list().size() == 1 || world.rank() != 0, "one checkpoint");
    });
}

BOOST_AUTO_TEST_SUITE_END()

// All ranks of a pipeline learn what goes wrong on one of them.
#include "training.hpp"

#include "unisono/trainer/stop_on_signal.hpp"

#include <boost/test/unit_test.hpp>

#include <csignal>
#include <limits>
#include <thread>
#include <unistd.h>

using namespace unisono_test;
using test::Group;
using namespace std::chrono_literals;

namespace {

/// Kills its process in the given backward pass.
struct Deadly : Squash<float> {
    int left = 0;
    void backward(un::LayerBackward<float>& call) {
        if (left-- == 1) ::kill(::getpid(), SIGKILL);
        Squash<float>::backward(call);
    }
};
/// Its gradient is not finite after `good` forward passes.
struct Infinite : Dense<float> {
    int good = 0;
    void backward(un::LayerBackward<float>& call) {
        Dense<float>::backward(call);
        if (good-- <= 0) call.gradient[0] = std::numeric_limits<float>::infinity();
    }
};

un::RowBatch<float> batch_of(std::size_t rows, std::size_t columns = width) {
    return {std::vector<float>(rows * columns, 0.25f), std::vector<std::int32_t>(rows, 1), columns};
}

/// Three stages. The second one has this layer.
template <class Layer>
un::Layers<float> with(Layer layer) {
    un::Layers<float> all;
    all.add(Dense<float>{width, hidden, 1}).add(Dense<float>{hidden, hidden, 2}).add(std::move(layer));
    all.add(Dense<float>{hidden, results, 3});
    return all;
}
const un::PipelineOptions options{.micro_batches = 4, .placement = {1, 2, 1}};

struct Told {
    int code = 0;
    int rank = -1, peer = -1;
    char text[400] = {};
};
using AllTold = std::array<Told, 8>;

void note(const un::error& failed, Told& mine) {
    mine.code = static_cast<int>(failed.code());
    mine.rank = failed.rank();
    mine.peer = failed.peer();
    std::string(failed.what()).copy(mine.text, sizeof mine.text - 1);
}
/// Runs `body` on the given number of ranks, and records what each throws.
template <class Body>
void note(int ranks, AllTold& told, const Body& body) {
    try {
        test::run(ranks,
                  [&](Group& world) {
                      Told& mine = told[static_cast<std::size_t>(world.rank())];
                      try {
                          body(world);
                      } catch (const un::error& failed) {
                          note(failed, mine);
                          if (failed.code() != un::ErrorCode::mismatch) throw; // all ranks throw it
                      }
                  },
                  {.timeout = 60s, .grace = 20s});
    } catch (const std::exception&) { // of the first rank
    }
}
void expect(const AllTold& told, int ranks, int but, un::ErrorCode code, const std::string& words) {
    for (int rank = 0; rank < ranks; ++rank) {
        if (rank == but) continue;
        const Told& one = told[static_cast<std::size_t>(rank)];
        BOOST_TEST(one.code == static_cast<int>(code), "rank " << rank << ": " << one.text);
        BOOST_TEST(std::string(one.text).find(words) != std::string::npos, "rank " << rank << ": " << one.text);
    }
}

} // namespace

BOOST_AUTO_TEST_SUITE(pipeline_failures)

BOOST_AUTO_TEST_CASE(a_layer_that_throws) {
    test::Shared<AllTold> told;
    note(3, *told, [](Group& world) {
        un::PipelineModel model{world, with(Dense<float>{hidden, hidden, 4, 6}), Distance<float>{results},
                                un::OneForwardOneBackward{}, options};
        for (int i = 0; i < 3; ++i) {
            un::Pass pass;
            model(batch_of(8), pass);
        }
    });
    expect(*told, 3, 1, un::ErrorCode::aborted, "rank 1 threw: a layer that does not want to");
}

BOOST_AUTO_TEST_CASE(a_rank_that_is_killed_is_named, *boost::unit_test::enable_if<!test::under_thread_sanitizer>()) {
    const OnProcesses processes;
    for (const int replicas : {1, 2}) {
        test::Shared<AllTold> told;
        note(3 * replicas, *told, [&](Group& world) {
            un::Mesh mesh{world, {{"data", replicas}, {"pipeline", 3}}};
            un::PipelineModel model{mesh.axis("pipeline"), with(Deadly{{hidden}, world.rank() == 1 ? 7 : 0}),
                                    Distance<float>{results}, un::OneForwardOneBackward{}, options};
            un::Trainer trainer{mesh.axis("data"), model, un::Sgd{.learning_rate = 0.01}};
            for (int i = 0; i < 1000; ++i) trainer.step(batch_of(8));
        });
        // Either "was killed by signal 9", if the parent is the first to see it, or "died", if
        // another rank is.
        expect(*told, 3 * replicas, 1, un::ErrorCode::peer_lost, ": rank 1 ");
        for (const int rank : {0, 2}) BOOST_TEST((*told)[static_cast<std::size_t>(rank)].peer == 1);
    }
}

BOOST_AUTO_TEST_CASE(a_gradient_that_is_not_finite_stops_all_parts_alike) {
    test::Shared<std::array<std::array<float, 2>, 6>> values;
    test::Shared<AllTold> told;
    test::Findings findings;
    note(6, *told, [&](Group& world) {
        un::Mesh mesh{world, {{"data", 2}, {"pipeline", 3}}};
        // In the third update of one replica.
        un::PipelineModel model{mesh.axis("pipeline"),
                                with(Infinite{{hidden, hidden, 4}, world.rank() == 4 ? 8 : 1000}),
                                Distance<float>{results}, un::OneForwardOneBackward{}, options};
        un::Trainer trainer{mesh.axis("data"), model, un::Sgd{.learning_rate = 0.01}};
        for (int i = 0; i < 2; ++i) findings.expect(trainer.step(batch_of(8)).committed, "a good update");
        auto& mine = (*values)[static_cast<std::size_t>(world.rank())];
        mine[0] = model.parameters()[0][0];
        try {
            trainer.step(batch_of(8));
            findings.expect(false, "it went on");
        } catch (const un::error& failed) {
            mine[1] = model.parameters()[0][0];
            note(failed, (*told)[static_cast<std::size_t>(world.rank())]);
        }
    });
    expect(*told, 6, -1, un::ErrorCode::not_finite, "NaN or infinite");
    for (const auto& [before, after] : *values) BOOST_TEST(before == after);
    BOOST_TEST((*told)[1].rank == 4); // the world's number, on both ranks of the axis
    BOOST_TEST((*told)[4].rank == 4);
    expect(*told, 1, -1, un::ErrorCode::not_finite, "another part of the model");
}

BOOST_AUTO_TEST_CASE(loss_scaling_backs_off_on_all_parts_alike) {
    test::on_ranks(3, [&](Group& world, test::Findings& findings) {
        un::Mesh mesh{world, {{"data", 1}, {"pipeline", 3}}};
        un::PipelineModel model{mesh.axis("pipeline"),
                                with(Infinite{{hidden, hidden, 4}, world.rank() == 1 ? 4 : 1000}),
                                Distance<float>{results}, un::OneForwardOneBackward{}, options};
        un::Trainer trainer{mesh.axis("data"), model, un::Sgd{.learning_rate = 0.01}, un::LossScaling{.initial = 1024}};
        findings.expect(trainer.step(batch_of(8)).committed, "the first update");
        findings.expect(!trainer.step(batch_of(8)).committed, "the second update");
        findings.expect(trainer.step(batch_of(8)).loss_scale == 512, "the scale");
    });
}

/// Each stage is in a group of its own. A signal that comes after the first one has asked for it
/// stops no stage alone.
BOOST_AUTO_TEST_CASE(a_signal_stops_all_parts_after_the_same_update) {
    test::Findings findings;
    const un::StopOnSignal stop({SIGUSR2});
    test::run(4,
              [&](Group& world) {
                  un::Mesh mesh{world, {{"data", 2}, {"pipeline", 2}}};
                  un::PipelineModel model{mesh.axis("pipeline"), with(Squash<float>{hidden}), Distance<float>{results},
                                          un::OneForwardOneBackward{}, un::PipelineOptions{.micro_batches = 2}};
                  un::Trainer trainer{mesh.axis("data"), model, un::Sgd{.learning_rate = 0.01}};
                  const Samples<float> samples(40);
                  const auto report = trainer.fit(
                      samples.data(), {.epochs = 1000, .batch_size = 4, .progress = false, .stop_on = &stop},
                      [&](const un::UpdateReport& update) {
                          if (update.number != 7 || mesh.coordinate("pipeline") == 0) return;
                          std::this_thread::sleep_for(100ms); // the first stage has asked after this update
                          if (world.rank() == 3) static_cast<void>(std::raise(SIGUSR2));
                      });
                  findings.expect(report.stopped, "a rank did not stop");
                  const std::array<std::uint64_t, 1> mine = {trainer.updates()};
                  std::array<std::uint64_t, 4> all = {};
                  un::all_gather(world, mine, all);
                  for (const std::uint64_t one : all)
                      findings.expect(one == mine[0], "a rank stopped after another update");
              },
              {.timeout = 20s});
}

BOOST_AUTO_TEST_CASE(ranks_that_differ_are_named) {
    const auto check = [](const std::string& words, const auto& make) {
        test::Shared<AllTold> told;
        note(3, *told, make);
        expect(*told, 3, -1, un::ErrorCode::mismatch, words);
        BOOST_TEST((*told)[0].rank == 2);
    };
    check("rank 2 differs from rank 0", [](Group& world) {
        un::PipelineOptions mine = options;
        if (world.rank() == 2) mine.micro_batches = 5;
        un::PipelineModel{world, with(Squash<float>{hidden}), Distance<float>{results}, un::OneForwardOneBackward{},
                          mine};
    });
    check("rank 2 differs from rank 0", [](Group& world) {
        const unsigned wide = world.rank() == 2 ? 11 : hidden;
        un::Layers<float> layers{Dense<float>{width, wide}, Dense<float>{wide, hidden}, Dense<float>{hidden, results}};
        un::PipelineModel{world, std::move(layers), Distance<float>{results}};
    });
}

BOOST_AUTO_TEST_CASE(ranks_of_a_group_are_named_as_in_the_world) {
    test::Shared<AllTold> told;
    note(3, *told, [](Group& world) {
        Group pair = world.split(world.rank() == 0 ? un::no_colour : 0, 0); // ranks 1 and 2
        if (world.rank() == 0) return;
        const un::PipelineOptions mine{.micro_batches = world.rank() == 2 ? 5u : 4u};
        un::PipelineModel{pair, with(Squash<float>{hidden}), Distance<float>{results}, un::OneForwardOneBackward{},
                          mine};
    });
    for (const std::size_t rank : {std::size_t{1}, std::size_t{2}}) {
        const Told& one = (*told)[rank];
        BOOST_TEST(std::string(one.text).find("rank 2 differs from rank 1") != std::string::npos, one.text);
        BOOST_TEST(one.rank == 2);
        BOOST_TEST(one.peer == 1);
    }
}

BOOST_AUTO_TEST_CASE(batches_that_do_not_fit) {
    test::Shared<AllTold> told;
    note(3, *told, [](Group& world) {
        un::PipelineModel model{world, with(Squash<float>{hidden}), Distance<float>{results},
                                un::OneForwardOneBackward{}, options};
        un::Pass pass;
        model(batch_of(4), pass);
        model(batch_of(2), pass); // fewer samples than micro-batches
        model(batch_of(8, 5), pass);
    });
    expect(*told, 1, -1, un::ErrorCode::bad_input, "of 2 samples has 10 values, expected 12");
    expect(*told, 3, 0, un::ErrorCode::bad_input, "rank 0 failed");
    note(3, *told, [](Group& world) { // other sizes on other ranks
        un::PipelineModel model{world, with(Squash<float>{hidden}), Distance<float>{results},
                                un::OneForwardOneBackward{}, options};
        un::Pass pass;
        model(batch_of(world.rank() == 1 ? 8 : 12), pass);
    });
    expect(*told, 3, -1, un::ErrorCode::mismatch, "receive");
}

BOOST_AUTO_TEST_SUITE_END()

// Typical mistakes in first programs that show at run time, with the library's exact messages. `*`
// stands for what varies, such as the rank that noticed first. compiled/programs.cpp has mistakes
// that the compiler finds. A sanitizer build shows that none is undefined behaviour.
#include "unisono/automatic.hpp"
#include "unisono/extensions/checkpoint/checkpoints.hpp"
#include "unisono/extensions/launch/sockets/environment.hpp"
#include "unisono/extensions/observe/metric_files.hpp"
#include "unisono/tcp.hpp"
#include "unisono/unisono.hpp"

#include "support/folder.hpp"
#include "unisono_run/options.hpp"

#include <boost/test/unit_test.hpp>

#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace un = unisono;
using namespace std::chrono_literals;

namespace {

using World = un::Group<un::InProcess>;
using Batch = un::RowBatch<float>;

/// Each mistake defines what its call does.
struct Model {
    std::vector<float> w, g;
    std::function<void(Model&, const Batch&, un::Pass&)> does = [](Model& model, const Batch&, un::Pass&) {
        model.g[0] += 1;
    };
    std::size_t outputs = 1;

    explicit Model(std::size_t parameters = 2) : w(parameters), g(parameters) {}
    std::span<float> parameters() { return w; }
    std::span<float> gradients() { return g; }
    double operator()(const Batch& batch, un::Pass& pass) {
        does(*this, batch, pass);
        return 1;
    }
    std::vector<float> predict(const Batch&) const { return std::vector<float>(outputs); }
};

const std::vector<float> values(32, 1.0f);
const un::RowData data(values, 2); // 16 samples of 2 numbers

bool fits(std::string_view text, std::string_view pattern) {
    bool first = true;
    for (;;) {
        const std::size_t star = pattern.find('*');
        const std::string_view part = pattern.substr(0, star);
        const bool last = star == std::string_view::npos;
        const std::size_t at =
            last && !first ? (text.size() < part.size() ? text.npos : text.size() - part.size()) : text.find(part);
        if (at == text.npos || text.substr(at, part.size()) != part || (first && at != 0)) return false;
        text.remove_prefix(at + part.size());
        if (last) return text.empty();
        pattern.remove_prefix(star + 1);
        first = false;
    }
}

void expect(const std::string& said, std::string_view pattern) {
    BOOST_CHECK_MESSAGE(fits(said, pattern),
                        "said: " << (said.empty() ? "nothing" : said) << "\nexpected: " << pattern);
}

/// The text of the exception that the call throws.
template <class Body>
std::string said_by(Body&& body) {
    try {
        body();
    } catch (const std::exception& failed) {
        return failed.what();
    }
    return {};
}

/// Two ranks make the mistake. Neither continues as if nothing had happened: each throws. The first
/// error of the world is as expected.
template <class Body>
void on_two(std::string_view pattern, Body body) {
    std::array<std::string, 2> said;
    const std::string first = said_by([&] {
        un::run<un::InProcess>(2,
                               [&](World& world) {
                                   try {
                                       body(world);
                                   } catch (const std::exception& failed) {
                                       said[static_cast<std::size_t>(world.rank())] = failed.what();
                                       throw;
                                   }
                               },
                               {.timeout = 10s});
    });
    expect(first, pattern);
    for (std::size_t rank = 0; rank < said.size(); ++rank)
        BOOST_CHECK_MESSAGE(!said[rank].empty(), "rank " << rank << " heard nothing");
}

/// As on_two, for a mistake after which one rank ends well, and only the other one can report it.
template <class Body>
void on_one(std::string_view pattern, Body body) {
    expect(said_by([&] { un::run<un::InProcess>(2, body, {.timeout = 10s}); }), pattern);
}

template <class... Policies, class Change>
void train(std::string_view pattern, const un::FitOptions& options, Change change, Policies... policies) {
    on_two(pattern, [&](World& world) {
        Model model;
        change(model, world);
        un::Trainer trainer{world, model, policies...};
        trainer.fit(data, options);
    });
}
constexpr auto nothing = [](Model&, World&) {};

const un::FitOptions quiet{.batch_size = 4, .progress = false};

} // namespace

BOOST_AUTO_TEST_SUITE(mistakes)

BOOST_AUTO_TEST_CASE(patterns_fit) {
    BOOST_CHECK(fits("rank 1: no", "rank *: no") && fits("abc", "abc") && fits("abab", "a*b") && fits("a", "a*"));
    BOOST_CHECK(!fits("", "a") && !fits("abc", "ab") && !fits("xab", "ab*") && !fits("abc", "*b") && !fits("b", "ab"));
}

BOOST_AUTO_TEST_CASE(options_of_fit) {
    train("unisono: bad_input: rank *: FitOptions.batch_size is 0; expected at least 1, or a global_batch_size to "
          "derive it from",
          {}, nothing);
    train("unisono: bad_input: rank *: FitOptions.epochs is 0; expected at least 1", {.epochs = 0, .batch_size = 4},
          nothing);
    train("unisono: bad_input: rank *: FitOptions.global_batch_size is 4; expected 8: 2 ranks x 1 micro-batches each, "
          "of batch_size 4",
          {.batch_size = 4, .global_batch_size = 4}, nothing);
    train("unisono: bad_input: rank *: FitOptions.global_batch_size is 3; expected a multiple of 2, such as 4 (2 ranks "
          "x 1 "
          "micro-batches each), so that "
          "batch_size can be derived",
          {.global_batch_size = 3}, nothing);
    train("unisono: bad_input: rank *: DistributedSampler: batch_size is 2000, expected at most data_size, which is "
          "16: a batch larger than the data",
          {.batch_size = 2000}, nothing);
}

BOOST_AUTO_TEST_CASE(numbers_of_policies) {
    train("unisono: bad_input: rank *: Sgd.learning_rate is nan; expected a finite number of at least 0", quiet,
          nothing, un::Sgd{.learning_rate = std::nan("")});
    train("unisono: bad_input: rank *: Sgd.learning_rate is -0.1*; expected a finite number of at least 0", quiet,
          nothing, un::Sgd{.learning_rate = -0.1});
    train("unisono: bad_input: rank *: Adam.beta1 is 1.5*; expected at least 0 and less than 1", quiet, nothing,
          un::Adam{.beta1 = 1.5});
    train("unisono: bad_input: rank *: ClipByNorm.max_norm is -1*; expected more than 0", quiet, nothing,
          un::ClipByNorm{.max_norm = -1});
    train("unisono: bad_input: rank *: Accumulate: steps is 0, expected 1 or more", quiet, nothing,
          un::Accumulate{.steps = 0});
    train("unisono: bad_input: rank *: Replicas.count is 1; expected 2, the number of ranks, to 2^31 - 1: a rank hosts "
          "at least one",
          quiet, nothing, un::Replicas{.count = 1});
}

BOOST_AUTO_TEST_CASE(data_sets) {
    expect(said_by([] { un::RowData(values, 3); }),
           "unisono: bad_input: RowData: 32 values; expected a multiple of the width, which is 3");
    expect(said_by([] { un::RowData(values, 0); }), "unisono: bad_input: RowData: width is 0, expected 1 or more");
    const std::vector<int> labels(3);
    expect(said_by([&] { un::RowData(values, 2, labels); }),
           "unisono: bad_input: RowData: 3 labels for 16 rows; expected one for each row");
    const std::array<std::size_t, 1> beyond = {99}, second = {1};
    expect(said_by([&] { static_cast<void>(data.batch(beyond)); }),
           "unisono: bad_input: RowData: index 99 of 16 rows; expected an index below that");
    expect(said_by([&] { static_cast<void>(data.batch(second).row(1)); }),
           "unisono: bad_input: RowBatch: row 1 of 1 rows; expected an index below that");
    on_two("unisono: bad_input: rank *: fit: the data set is empty (size() is 0)", [](World& world) {
        Model model;
        const std::vector<float> none;
        const un::RowData empty(none, 2);
        un::Trainer trainer{world, model};
        trainer.fit(empty, quiet);
    });
}

// --- the model

BOOST_AUTO_TEST_CASE(a_gradient_that_is_never_added) { // a warning: a gradient may be zero
    char* text = nullptr;
    std::size_t bytes = 0;
    std::FILE* const caught = ::open_memstream(&text, &bytes);
    std::FILE* const usual = std::exchange(stderr, caught);
    un::run<un::InProcess>(2, [](World& world) {
        Model model, right;
        model.does = [](Model&, const Batch&, un::Pass&) {};
        un::Trainer trainer{world, model}, second{world, right};
        trainer.fit(data, quiet);
        trainer.fit(data, quiet); // no second warning
        second.fit(data, quiet);
    });
    stderr = usual;
    std::fclose(caught);
    expect(std::string(text, bytes), "unisono: warning: the model's first call left all 2 elements of gradients() at "
                                     "zero (on rank 0); expected that "
                                     "model(batch, pass) adds the gradient there\n");
    std::free(text);
}

BOOST_AUTO_TEST_CASE(memory_of_a_model) {
    train("unisono: bad_input: rank *: parameter 0 has 2 elements and its gradient 1; expected the same number", quiet,
          [](Model& model, World&) { model.g.resize(1); });
    train("unisono: bad_input: rank *: the model has no parameters; expected at least one element", quiet,
          [](Model& model, World&) {
              model.w.clear();
              model.g.clear();
          });
    train("unisono: mismatch in Trainer: parameter 0 has 3 elements on rank 1 and 2 on rank 0*", quiet,
          [](Model& model, World& world) { model = Model(2 + static_cast<std::size_t>(world.rank())); });
    train("unisono: bad_input: rank *: parameter 0: gradients() has 2 elements at another address; expected the 2 "
          "elements at the address that they had when the trainer was made (*",
          quiet, [](Model& model, World&) {
              model.does = [](Model& own, const Batch&, un::Pass&) {
                  own.g = std::vector<float>{1, 2};
              }; // moves: the memory is another
          });
    train("unisono: bad_input: rank *: parameter 0: parameters() has 5000 elements; expected the 2 elements at the "
          "address that they had when the trainer was made (*",
          quiet,
          [](Model& model, World&) { model.does = [](Model& own, const Batch&, un::Pass&) { own.w.resize(5000); }; });
    on_two("unisono: bad_input: rank *: parameter 0: parameters() has 2 elements at another address; *",
           [](World& world) {
               Model model;
               un::Trainer trainer{world, model};
               // Weights from a file, after the trainer was made.
               model.w = std::vector<float>{1, 2};
               trainer.fit(data, quiet);
           });
}

BOOST_AUTO_TEST_CASE(calls_of_a_model) {
    train("unisono: bad_input: rank *: pass.ready(7): the model has 1 parameters; expected an index below that", quiet,
          [](Model& model, World&) { model.does = [](Model&, const Batch&, un::Pass& pass) { pass.ready(7); }; });
    train("unisono: bad_input: rank *: pass.ready(0) was called twice in one micro-batch", quiet,
          [](Model& model, World&) {
              model.does = [](Model&, const Batch&, un::Pass& pass) {
                  pass.ready(0);
                  pass.ready(0);
              };
          });
    train("unisono: not_finite in fit: the gradient of parameter 0 is NaN or infinite on rank 1, in update 1; the "
          "parameters are as they were before "
          "it, on all ranks",
          quiet, [](Model& model, World& world) {
              if (world.rank() == 1)
                  model.does = [](Model& own, const Batch&, un::Pass&) {
                      own.g[1] = std::numeric_limits<float>::quiet_NaN();
                  };
          });
    train("the file is not there", quiet,
          // The exception stays as it was. The other rank gets its text and its rank.
          [](Model& model, World& world) {
              if (world.rank() == 1)
                  model.does = [](Model&, const Batch&, un::Pass&) {
                      throw std::runtime_error("the file is not there");
                  };
          });
    BOOST_TEST(un::failed_rank() == 1);
    on_two("unisono: bad_input: rank *: predict: the model gave 3 outputs for 8 samples; expected a multiple of the "
           "samples",
           [](World& world) {
               Model model;
               model.outputs = 3;
               un::Trainer trainer{world, model};
               trainer.predict(data);
           });
}

// --- ranks that do different things

BOOST_AUTO_TEST_CASE(trainers_of_ranks) {
    on_one("unisono: peer_lost in the constructor of a Trainer #1: rank 1 has left; rank 0 waits for it in the "
           "constructor of a Trainer",
           [](World& world) {
               Model model;
               if (world.rank() == 0) un::Trainer trainer{world, model};
           });
    on_one("unisono: peer_lost in Trainer::fit #*: rank 1 has left; rank 0 waits for it in Trainer::fit",
           [](World& world) {
               Model model;
               un::Trainer trainer{world, model};
               if (world.rank() == 0) trainer.fit(data, quiet);
           });
    on_one("unisono: peer_lost in Checkpoints::save #*: rank 1 has left; rank 0 waits for it in Checkpoints::save",
           [](World& world) {
               const unisono_test::Folder folder;
               Model model;
               un::Trainer trainer{world, model};
               un::Checkpoints checkpoints(folder.path());
               if (world.rank() == 0) checkpoints.save(trainer);
           });
    on_two("unisono: mismatch in *: rank * called *Trainer::verify_replicas*", [](World& world) {
        Model model;
        un::Trainer trainer{world, model};
        if (world.rank() == 0) trainer.verify_replicas();
        else trainer.fit(data, quiet);
    });
    std::string said_by_step;
    on_two("unisono: mismatch in all_reduce #*: rank * called all_reduce(sum) of * elements *, rank * called "
           "all_reduce(sum) of * elements *; expected calls of the same trainer on all ranks (*)",
           [&](World& world) {
               Model model;
               un::Trainer trainer{world, model};
               std::vector<float> own(7);
               const std::array<std::size_t, 1> first = {0};
               if (world.rank() == 1) return un::all_reduce(world, own);
               said_by_step = said_by([&] { trainer.step(data.batch(first)); });
               world.check(); // the world's error is thrown again
           });
    expect(said_by_step, "unisono: mismatch in *: rank * called *, rank * called * (this rank called step)");
    on_two("unisono: mismatch in fit: FitOptions.batch_size is 2 on rank 1 and 1 on rank 0; expected the same on all "
           "ranks",
           [](World& world) {
               Model model;
               un::Trainer trainer{world, model};
               trainer.fit(data, {.batch_size = 1 + world.rank()});
           });
    on_two("unisono: mismatch in Trainer: rank 1 has another optimizer than rank 0 (here: Sgd(learning_rate 0.*)); "
           "expected policies of equal parameters "
           "on all ranks",
           [](World& world) {
               Model model;
               un::Trainer trainer{world, model, un::Sgd{.learning_rate = 0.1 * (1 + world.rank())}};
           });
    on_two("unisono: mismatch in fit: data.size() is 8 on rank 1 and 16 on rank 0; expected the same on all ranks",
           [](World& world) {
               Model model;
               un::Trainer trainer{world, model};
               const std::vector<float> mine(world.rank() == 0 ? 32 : 16);
               const un::RowData own(mine, 2); // each rank its own file
               trainer.fit(own, quiet);
           });
    on_two("unisono: mismatch in verify_replicas: parameter 0 differs between rank 0 and rank 1*", [](World& world) {
        Model model;
        un::Trainer trainer{world, model};
        model.w[1] += static_cast<float>(world.rank());
        trainer.verify_replicas();
    });
}

BOOST_AUTO_TEST_CASE(collectives_of_ranks) {
    using Floats = std::vector<float>;
    on_two("unisono: mismatch in all_reduce #1: rank * called all_reduce(sum) of * float32 elements, rank * called "
           "all_reduce(sum) of * float32 elements",
           [](World& world) {
               Floats x(1 + static_cast<std::size_t>(world.rank()));
               un::all_reduce(world, x);
           });
    on_two("unisono: mismatch in * #1: rank * called *, rank * called *", [](World& world) {
        Floats x(2);
        if (world.rank() == 0) un::all_reduce(world, x);
        else un::broadcast(world, x, 0);
    });
    on_two("unisono: mismatch in all_reduce #1: rank * called all_reduce(sum) of 2 *32 elements, rank * called "
           "all_reduce(sum) of 2 *32 elements",
           [](World& world) {
               Floats x(2);
               std::vector<int> y(2);
               if (world.rank() == 0) un::all_reduce(world, x);
               else un::all_reduce(world, y);
           });
    on_two("unisono: mismatch in all_reduce #1: rank * called all_reduce(*) of 2 float32 elements, rank * called "
           "all_reduce(*) of 2 float32 elements",
           [](World& world) {
               Floats x(2);
               if (world.rank() == 0) un::all_reduce(world, x);
               else un::all_reduce(world, x, un::Max{});
           });
    on_two("unisono: mismatch in broadcast #1: rank * called broadcast of 2 float32 elements, rank * called broadcast "
           "of 2 float32 elements, but by another "
           "schedule or with another root",
           [](World& world) {
               Floats x(2);
               un::broadcast(world, x, world.rank());
               un::barrier(world); // the first call in which one of them waits for the other
           });
    on_two("unisono: bad_input: rank *: broadcast's root: rank 2 is not in the group of 2 (found on rank *)",
           [](World& world) {
               Floats x(2);
               un::broadcast(world, x, 2);
           });
    on_two("unisono: bad_input: rank *: all_gather on rank *: the buffer of all blocks has 3 elements, expected 4",
           [](World& world) {
               Floats x(2), all(3);
               un::all_gather(world, x, all);
           });
    on_two("unisono: bad_input: rank *: all_to_all on rank *: the input of 16 bytes begins 0 bytes behind the "
           "beginning of the output of 16 bytes and "
           "overlaps it; expected no overlap. Nothing was changed",
           [](World& world) {
               Floats x(4);
               un::all_to_all(world, x, x);
           });
    on_two("unisono: aborted in all_reduce #1: rank * dropped the handle of an unfinished operation", [](World& world) {
        Floats x(2);
        if (world.rank() == 1) un::receive(world, x, 0); // another collective would be a mismatch
        { const un::Operation dropped = un::start_all_reduce(world, x); }
        un::barrier(world);
    });
}

BOOST_AUTO_TEST_CASE(messages_between_ranks) {
    using Floats = std::vector<float>;
    on_two("unisono: bad_input: rank *: send's peer: rank 5 is not in the group of 2 (found on rank *)",
           [](World& world) { un::send(world, Floats(2), 5); });
    on_two("unisono: bad_input: rank *: rank * sends to, or receives from, itself; expected another rank as the peer",
           [](World& world) { un::send(world, Floats(2), world.rank()); });
    on_two("unisono: mismatch in send/receive: rank * called send/receive of * float32 elements, rank * called "
           "send/receive of * float32 elements",
           [](World& world) {
               Floats x(4), y(5);
               if (world.rank() == 0) un::send(world, x, 1);
               else un::receive(world, y, 0);
               un::barrier(world);
           });
    on_two("unisono: timeout in send/receive: rank * waited 200 ms for receive of 4 float32 elements from rank *",
           [](World& world) {
               world.set_timeout(200ms);
               Floats x(4);
               un::receive(world, x, 1 - world.rank());
           });
    on_two("unisono: timeout in send/receive: rank * waited 200 ms for send of 1000000 float32 elements to rank * (a "
           "send may wait until its data are received: if both ranks send first, begin with start_send, receive, and "
           "then wait for the send)",
           [](World& world) {
               world.set_timeout(200ms);
               Floats x(1'000'000);
               un::send(world, x, 1 - world.rank());
               un::receive(world, x, 1 - world.rank());
           });
}

BOOST_AUTO_TEST_CASE(worlds) {
    const auto idle = [](World&) {};
    expect(said_by([&] { un::run<un::InProcess>(0, idle); }),
           "unisono: bad_input: run: a program starts 1 to 4096 ranks, found 0");
    on_two("unisono: bad_input: rank *: a timeout must be positive, found 0 ns",
           [](World& world) { world.set_timeout(0s); });
    on_two("unisono: bad_input: rank *: a colour must be at least 0, or no_colour; rank * gave -5",
           [](World& world) { static_cast<void>(world.split(-5, 0)); });
    on_two("unisono: refused: rank *: run forks, but this process has * threads already: start the ranks before "
           "anything that makes threads (*",
           [](World&) { un::run<un::SharedMemory>(2, [](auto&) {}); });
}

// --- files

BOOST_AUTO_TEST_CASE(checkpoints) {
    const unisono_test::Folder folder;
    un::run<un::InProcess>(2, [&](World& world) {
        Model model;
        un::Trainer trainer{world, model, un::DistributedSampler{.shuffle = true, .seed = 1}};
        un::Checkpoints files(folder.path());
        // In the middle of an epoch.
        trainer.fit(data, quiet, [](const un::UpdateReport&) { return false; });
        files.save(trainer);
    });
    const auto resume = [&](std::size_t parameters, const std::string& name, auto optimizer, auto sampler) {
        return [&folder, parameters, name, optimizer, sampler](World& world) {
            Model model(parameters);
            un::Trainer trainer{world, model, optimizer, sampler};
            un::Checkpoints files(folder.path());
            files.resume(trainer, name);
        };
    };
    const un::DistributedSampler same{.shuffle = true, .seed = 1};
    on_two("unisono: bad_input in resume: rank 0: '*manifest.json': found parameter \"parameter_0\" of F32 [2]; "
           "expected F32 [3], as the model has",
           resume(3, "", un::Sgd{}, same));
    on_two("unisono: bad_input in resume: rank 0: '*manifest.json': found the optimizer's state of Sgd []; expected "
           "that of Adam [exp_avg, exp_avg_sq]",
           resume(2, "", un::Adam{}, same));
    on_two(
        "unisono: bad_input in resume: rank 0: '*manifest.json': its position is sample 8 of epoch 0 in the order of "
        "DistributedSampler (seed 1, shuffled); "
        "expected the order of this trainer's DistributedSampler (seed 0, shuffled)",
        resume(2, "", un::Sgd{}, un::DistributedSampler{}));
    on_two("unisono: bad_input in resume: rank 0: 'best' is no checkpoint's name; expected one like 'checkpoint-*'",
           resume(2, "best", un::Sgd{}, same));
    on_two("unisono: refused in save: rank 0: cannot make the folder '/proc/nothing': No such file or directory",
           [](World& world) {
               Model model;
               un::Trainer trainer{world, model};
               un::Checkpoints("/proc/nothing").save(trainer);
           });
    on_one("unisono: refused in metrics: rank 0: cannot open '/proc/nothing/run.jsonl': No such file or directory",
           [](World& world) { const un::JsonLinesFile file(world, "/proc/nothing/run.jsonl"); });
}

// --- the shell

BOOST_AUTO_TEST_CASE(variables_of_launchers) {
    const auto joined = [](const std::map<std::string, std::string>& variables) {
        for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
        const std::string said = said_by([] {
            auto world = un::join<un::Tcp>({.timeout = 10s, .rendezvous = {.timeout = 200ms}});
            un::barrier(world);
        });
        for (const auto& [name, value] : variables) ::unsetenv(name.c_str());
        return said;
    };
    expect(joined({{"RANK", "0"}}), "unisono: bad_input: torchrun: RANK=0 is set, but WORLD_SIZE is not");
    expect(joined({{"RANK", "2"}, {"WORLD_SIZE", "2"}}),
           "unisono: bad_input: torchrun: RANK=2 and WORLD_SIZE=2 contradict: ranks are 0 to 1");
    expect(joined({{"RANK", "one"}, {"WORLD_SIZE", "2"}}),
           "unisono: bad_input: RANK is 'one', expected a number from 0 to 1048576");
    expect(joined({{"RANK", "0"}, {"WORLD_SIZE", "2"}}),
           "unisono: refused: nothing says where the 2 ranks (launcher: torchrun) meet: set MASTER_ADDR and "
           "MASTER_PORT, or UNISONO_FOLDER to a folder that "
           "all hosts see");
    expect(joined({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "ten"}}),
           "unisono: bad_input: MASTER_ADDR='127.0.0.1' and MASTER_PORT='ten': expected a host and a port from 1 to "
           "65535");
    expect(joined({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "1"}}),
           "unisono: timeout in rendezvous: rank 1 waited 200 ms for rank 0, which never came at *");
    expect(joined({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "4"}}),
           "unisono: bad_input: two launchers disagree: torchrun says RANK=0 WORLD_SIZE=2; srun says SLURM_PROCID=1 "
           "SLURM_NTASKS=4 (*");
    const unisono_test::Folder folder;
    expect(joined({{"RANK", "0"}, {"WORLD_SIZE", "3"}, {"UNISONO_FOLDER", folder.path()}, {"UNISONO_JOB", "mistakes"}}),
           "unisono: timeout in rendezvous: rank 0 waited 200 ms: of 3 ranks 2 never came: ranks 1, 2*");
}

// A warning, because a program may have variables of its own.
BOOST_AUTO_TEST_CASE(misspelt_variables) {
    const auto warned = [](const std::string& name) { return un::detail::unknown_variables({{name, "1"}}); };
    expect(warned("UNISONO_INTERFACES"), "unisono: warning: UNISONO_INTERFACES is set, but is no variable of Unisono; "
                                         "did you mean UNISONO_INTERFACE?\n");
    expect(warned("UNISONO_WORLDSIZE"), "unisono: warning: UNISONO_WORLDSIZE is set, but is no variable of Unisono; "
                                        "did you mean UNISONO_WORLD_SIZE?\n");
    for (const std::string name : {"UNISONO_RANK", "UNISONO_TEST_SEED", "UNISONO_RUN", "RANKS"})
        BOOST_CHECK_EQUAL(warned(name), "");
}

BOOST_AUTO_TEST_CASE(command_lines) {
    const auto said = [](const std::vector<std::string>& arguments) {
        const auto found = unisono_run::parse_launch(arguments);
        BOOST_CHECK_EQUAL(found.status, 2);
        return found.text;
    };
    expect(said({"-n", "0", "./train"}), "unisono-run: -n is '0', expected 1 to 4096 (--help shows the options)\n");
    expect(said({"-n", "2"}), "unisono-run: no program given (--help shows the options)\n");
    expect(said({"--nproc-per-node", "2", "./train"}),
           "unisono-run: unknown option '--nproc-per-node'; did you mean --ranks? (--help shows the options)\n");
}

BOOST_AUTO_TEST_SUITE_END()

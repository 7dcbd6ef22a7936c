// Hashes of a training's state are the same on any number of ranks. A rank that differs is named.
// Also tests logs, and the check that a model is deterministic.
#include "models.hpp"
#include "outcomes.hpp"

#include "support/owners_or_all.hpp"
#include "unisono/trainer/hashes.hpp"
#include "unisono/trainer/reproducible.hpp"
#include "unisono/trainer/verify_reproducible.hpp"
#include "unisono/unisono.hpp"

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

namespace {

namespace un = unisono;
using namespace unisono_test;

constexpr std::size_t columns = 7;
constexpr std::size_t samples = 40;
const std::vector<float> inputs = un::torch_rand(3, samples* columns);
const std::vector<float> targets = un::torch_rand(4, samples);
un::RowData<float, float> data() { return {inputs, columns, targets}; }
using Model = LeastSquares<float>;

std::string read(const std::string& path) {
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    std::remove(path.c_str());
    return text.str();
}

template <class... Policies>
std::string log_of(int ranks, std::int64_t every, std::uint64_t data_seed, Policies... policies) {
    const std::string path = "hashes_" + std::to_string(::getpid()) + ".log";
    check_clean(outcomes(ranks, [&](auto& world) {
        Model model(columns, 3);
        un::Trainer trainer(world, model, un::Replicas{4}, un::Reproducible{},
                            un::DistributedSampler{.seed = data_seed}, policies...);
        un::HashLog log(trainer, {.every = every, .path = path});
        auto set = data();
        trainer.fit(set, {.epochs = 2, .batch_size = 2, .progress = false}, std::ref(log));
    }));
    return read(path);
}

} // namespace

BOOST_AUTO_TEST_SUITE(trainer_hashes)

BOOST_AUTO_TEST_CASE(logs_of_any_number_of_ranks_are_equal_and_others_part) {
    const std::string one = log_of(1, 1, 0, un::Adam{});
    BOOST_TEST(un::compare_hash_logs(one, one).compared == 10u);
    BOOST_TEST(log_of(3, 1, 0, un::Adam{}) == one);
    BOOST_TEST(log_of(4, 1, 0, un::Adam{}, un::ParameterServerReducer{2}) == one);
    BOOST_TEST(log_of(3, 1, 0, un::Adam{}, un::StateSharding{}) == one);
    BOOST_TEST(log_of(2, 1, 0, un::Adam{}, test::OwnersOrAll{.sharded = true}) == one);
    BOOST_TEST(un::compare_hash_logs(log_of(2, 5, 0, un::Adam{}), "").what ==
               "the first log has an update 5, before which the other ends");
    const auto parted = un::compare_hash_logs(one, log_of(1, 1, 1, un::Adam{}));
    BOOST_TEST(!parted.equal);
    BOOST_TEST(parted.what.starts_with("update 1 differs: loss"));
}

BOOST_AUTO_TEST_CASE(a_resumed_training_continues_its_log) {
    const std::string path = "resumed_" + std::to_string(::getpid()) + ".log";
    const auto updates_in = [&](std::uint64_t resumed_at, bool before_log) {
        check_clean(outcomes(2, [&](auto& world) {
            Model model(columns, 3);
            un::Trainer trainer(world, model);
            if (before_log) trainer.restore(un::TrainingProgress{.updates = resumed_at});
            un::HashLog log(trainer, {.path = path});
            if (!before_log) trainer.restore(un::TrainingProgress{.updates = resumed_at});
            auto set = data();
            // Two updates.
            trainer.fit(set, {.epochs = 1, .batch_size = 10, .progress = false}, std::ref(log));
        }));
        std::ifstream file(path);
        std::string updates;
        for (std::string line; std::getline(file, line);) updates += line.substr(0, line.find(' ')) + " ";
        return updates;
    };
    BOOST_TEST(updates_in(0, true) == "1 2 ");
    BOOST_TEST(updates_in(2, true) == "1 2 3 4 ");
    BOOST_TEST(updates_in(3, false) == "1 2 3 4 5 ");   // the last checkpoint was older
    std::ofstream(path, std::ios::app) << "6 loss 0x1"; // written by a killed process
    BOOST_TEST(updates_in(5, true) == "1 2 3 4 5 6 7 ");
    BOOST_TEST(updates_in(0, false) == "1 2 "); // a new training
    std::remove(path.c_str());
    BOOST_REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
    un::Group<un::InProcess> alone;
    Model model(columns, 3);
    un::Trainer trainer(alone, model);
    BOOST_CHECK_EXCEPTION(un::HashLog(trainer, {.path = path}), un::error, [&](const un::error& refused) {
        return std::string(refused.what()).find(path + "': no process reads from this pipe") != std::string::npos;
    });
    std::remove(path.c_str());
}

BOOST_AUTO_TEST_CASE(a_rank_that_differs_is_named_with_the_first_parameter) {
    for (const bool in_state : {false, true}) {
        for (const Outcome& one : outcomes(3, [&](auto& world) {
                 Model model(columns, 3);
                 un::Trainer trainer(world, model, un::Sgd{.learning_rate = 0.1, .momentum = 0.9});
                 auto set = data();
                 trainer.fit(set, {.batch_size = 2, .progress = false});
                 const un::StateHash before = un::state_hash(trainer);
                 if (!(before == un::state_hash(trainer))) throw std::runtime_error("not a function of the state");
                 if (world.rank() == 2) {
                     float& one = in_state ? trainer.state().optimizer_state().array(0)[4] : model.spans[1][0];
                     one = std::nextafter(one, 1e9f);
                 }
                 un::state_hash(trainer);
             })) {
            BOOST_TEST(one.failed);
            BOOST_CHECK(one.code == un::ErrorCode::mismatch);
            BOOST_TEST(one.rank == 2);
            BOOST_TEST(one.says(in_state ? "momentum_buffer of parameter 1 differs between rank 0 and rank 2"
                                         : "parameter 1 differs between rank 0 and rank 2, after update 7"));
        }
    }
}

BOOST_AUTO_TEST_CASE(a_run_goes_on_elsewhere_with_its_grids) {
    // 3 ranks for one epoch, then 2 ranks of another trainer, equal one run of 4.
    const un::FitOptions first{.epochs = 1, .batch_size = 2, .progress = false};
    std::vector<float> expected, found, weights;
    std::vector<std::int32_t> grids;
    const auto take = [](std::vector<float>& to, auto& world, const Model& model) {
        if (world.rank() == 0) to = model.values();
    };
    check_clean(outcomes(4, [&](auto& world) {
        Model model(columns, 3);
        un::Trainer trainer(world, model, un::Replicas{4}, un::Reproducible{}, un::Sgd{.learning_rate = 0.1});
        auto set = data();
        trainer.fit(set, {.epochs = 2, .batch_size = 2, .progress = false});
        take(expected, world, model);
    }));
    check_clean(outcomes(3, [&](auto& world) {
        Model model(columns, 3);
        un::Trainer trainer(world, model, un::Replicas{4}, un::Reproducible{}, un::Sgd{.learning_rate = 0.1});
        auto set = data();
        trainer.fit(set, first);
        take(weights, world, model);
        if (world.rank() == 0)
            grids.assign(trainer.state().grid_exponents().begin(), trainer.state().grid_exponents().end());
    }));
    check_clean(outcomes(2, [&](auto& world) {
        Model model(columns, 3);
        std::copy(weights.begin(), weights.end(), model.contiguous.begin());
        un::Trainer trainer(world, model, un::Replicas{4}, un::Reproducible{}, un::Sgd{.learning_rate = 0.1});
        trainer.state().restore_grid_exponents(grids);
        auto set = data();
        auto second = first;
        second.start = un::Position{un::Epoch{1}, 0};
        trainer.fit(set, second);
        take(found, world, model);
    }));
    BOOST_TEST(std::memcmp(found.data(), expected.data(), expected.size() * sizeof(float)) == 0);
}

namespace {

/// Deterministic, or with one of several faults.
struct Suspect : Model {
    enum class Fault { none, counts, thread, loss, changes, buffer } fault;
    std::vector<float> statistics = {1, 2};
    int calls = 0;
    std::thread::id home = std::this_thread::get_id();
    explicit Suspect(Fault which) : Model(columns, 3), fault(which) {}
    std::span<float> buffers() { return statistics; }
    double operator()(const un::RowBatch<float, float>& batch, un::Pass& pass) {
        ++calls;
        double loss = Model::operator()(batch, pass);
        statistics[0] = 0.9f * statistics[0] + 0.1f * static_cast<float>(loss);
        if (fault == Fault::counts) gradient_spans[1][0] += static_cast<float>(calls);
        if (fault == Fault::thread && std::this_thread::get_id() != home) gradient_spans[2][0] += 1e-6f;
        if (fault == Fault::loss) loss += calls;
        if (fault == Fault::changes) spans[0][0] += 1;
        if (fault == Fault::buffer) statistics[1] = static_cast<float>(calls);
        return loss;
    }
};

} // namespace

BOOST_AUTO_TEST_CASE(a_model_is_deterministic_or_it_is_said_what_differs) {
    const auto set = data();
    const std::vector<std::size_t> some{0, 1, 2}, others{9, 8};
    const auto batch = set.batch(some);
    const auto another = set.batch(others);
    const auto verdict = [&](Suspect::Fault fault) {
        Suspect model(fault);
        const auto found = un::verify_reproducible(model, batch, another);
        BOOST_TEST(found.reproducible == found.what.empty());
        for (const float g : model.contiguous_gradient) BOOST_TEST(g == 0.0f);
        BOOST_TEST(model.statistics == std::vector<float>({1, 2}), boost::test_tools::per_element());
        BOOST_TEST(model.contiguous[0] == 0.0f);
        return found.what;
    };
    BOOST_TEST(verdict(Suspect::Fault::none) == "");
    BOOST_TEST(verdict(Suspect::Fault::counts) ==
               "the gradient of parameter 1 differs when a micro-batch is run twice");
    BOOST_TEST(verdict(Suspect::Fault::thread) == "the gradient of parameter 2 differs on another thread");
    BOOST_TEST(verdict(Suspect::Fault::loss) == "the loss differs when a micro-batch is run twice");
    BOOST_TEST(verdict(Suspect::Fault::changes).find("differs") != std::string::npos);
    BOOST_TEST(verdict(Suspect::Fault::buffer) == "a buffer differs when a micro-batch is run twice");
}

BOOST_AUTO_TEST_CASE(a_sample_has_its_own_random_stream_wherever_it_is_seen) {
    // Each sample draws once per use. The draw must not depend on batch size, ranks or replicas.
    struct Drawing : Model {
        using Model::Model;
        std::vector<std::uint32_t>* drawn = nullptr;
        double operator()(const un::RowBatch<float, float>& batch, un::Pass& pass) {
            for (std::size_t row = 0; row < batch.rows(); ++row) {
                auto first = pass.random(row);
                auto second = pass.random(row, 1);
                (*drawn)[2 * pass.samples()[row]] = first();
                (*drawn)[2 * pass.samples()[row] + 1] = second();
            }
            return Model::operator()(batch, pass);
        }
    };
    const auto drawn_by = [&](int ranks, std::int64_t batch_size) {
        std::vector<std::uint32_t> drawn(2 * samples);
        check_clean(outcomes(ranks, [&](auto& world) {
            Drawing model(columns);
            model.drawn = &drawn;
            un::Trainer trainer(world, model);
            auto set = data();
            trainer.fit(set, {.batch_size = batch_size, .seed = 5, .progress = false});
        }));
        return drawn;
    };
    const auto one = drawn_by(1, 1);
    for (std::size_t i = 1; i < one.size(); ++i) BOOST_TEST(one[i] != one[i - 1]);
    BOOST_TEST((drawn_by(1, 8) == one));
    BOOST_TEST((drawn_by(4, 5) == one));
}

BOOST_AUTO_TEST_SUITE_END()

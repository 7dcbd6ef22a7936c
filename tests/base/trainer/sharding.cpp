// Owners of slices change which rank updates what, and change no bit of the result.
#include "models.hpp"
#include "outcomes.hpp"

#include "support/owners_or_all.hpp"
#include "support/skip.hpp"
#include "unisono/automatic.hpp"
#include "unisono/extensions/automatic/reducer.hpp"
#include "unisono/unisono.hpp"

#include <boost/test/unit_test.hpp>

#include <array>
#include <cmath>
#include <csignal>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <unistd.h>
#include <vector>

namespace unisono_sharding {

namespace un = unisono;

/// Harms rank 1 in its third update, between the optimizer and the publication.
struct HarmedUpdate {
    bool kills = false;

    static constexpr std::string_view name = "harmed";
    static constexpr un::Family family = un::Family::update;
    static constexpr bool agrees = true;
    friend bool operator==(const HarmedUpdate&, const HarmedUpdate&) = default;
    inline static thread_local int updates = 0;
    inline static thread_local bool harmed = false;

    template <class Training>
    class Run : public un::UpdateRun<Training> {
    public:
        Run(Training& training, bool kills) : un::UpdateRun<Training>(training), kills_(kills) {}
        void publish() {
            if (++updates == 3 && harmed) {
                if (kills_) ::kill(::getpid(), SIGKILL);
                throw std::runtime_error("no more");
            }
            un::UpdateRun<Training>::publish();
        }
        template <class Row>
        void describe(Row&& row) { // not const, as a user may write it
            row("harms", kills_ ? "by a signal" : "by an exception");
        }

    private:
        bool kills_;
    };
    template <class Training>
    Run<Training> start(Training& training) const {
        return Run<Training>(training, kills);
    }
};

} // namespace unisono_sharding

namespace {

namespace un = unisono;
using namespace unisono_test;
using unisono_sharding::HarmedUpdate;

constexpr std::size_t most = 1200; // parameters

/// Parameters of uneven sizes, in one range or in ranges with gaps, in memory of its own or of the
/// group. The gradient depends on parameters, rank and sample, so that sums in another order would
/// show.
template <class T>
struct Model {
    std::vector<T> values, slopes;
    un::Memory<T> shared;
    std::vector<std::span<T>> spans, gradient_spans;
    float spoils = 0; ///< put into the third gradient

    template <class World>
    Model(World& world, const std::vector<std::size_t>& sizes, std::size_t gap, bool in_group) {
        std::size_t count = 0;
        for (const std::size_t size : sizes) count += size + gap;
        if (in_group) shared = world.template allocate<T>(2 * count);
        else values.resize(count), slopes.resize(count);
        T* value = in_group ? shared.data() : values.data();
        T* slope = in_group ? shared.data() + count : slopes.data();
        for (const std::size_t size : sizes) {
            spans.push_back({value, size});
            gradient_spans.push_back({slope, size});
            value += size + gap;
            slope += size + gap;
        }
        std::size_t at = 0;
        for (const auto& one : spans)
            for (T& x : one) x = static_cast<T>(std::sin(0.7 * static_cast<double>(++at)));
    }

    std::vector<std::span<T>>& parameters() { return spans; }
    std::vector<std::span<T>>& gradients() { return gradient_spans; }
    double operator()(const int& seed, un::Pass& pass) {
        double loss = 0;
        for (std::size_t p = spans.size(); p-- > 0;) {
            for (std::size_t i = 0; i < spans[p].size(); ++i) {
                const double x = static_cast<double>(spans[p][i]);
                const double g = std::sin(13.1 * seed + 0.37 * static_cast<double>(i + 7 * p)) * (1.5 + x);
                gradient_spans[p][i] += static_cast<T>(g * std::exp2(seed % 5));
                loss += g;
            }
            if (spoils != 0 && p == 2) gradient_spans[p][0] = static_cast<T>(spoils);
            pass.ready(p);
        }
        return loss;
    }
};

/// The state of each rank after a training.
template <class T>
struct Ends {
    std::array<std::array<T, most>, 8> values;
    /// The first array, in flat order, where this rank has it.
    std::array<std::array<T, most>, 8> state;
    std::array<std::array<bool, most>, 8> has;
    std::array<std::uint64_t, 8> updates;
    std::array<std::size_t, 8> owned;
    std::array<bool, 8> clean; ///< the gradients are zero
};

struct Case {
    std::vector<std::size_t> sizes = {37, 1, 300, 0, 5, 64, 513};
    std::size_t gap = 0;
    bool in_group = false;
    int micro_batches = 1;
    bool uneven = false;  ///< the last rank has no data in every third update
    bool spoiled = false; ///< a rank's gradient is NaN in the third update
    un::Buckets buckets = {.first_bytes = 200, .bytes = 900};
};

template <class T, class... Policies>
void train(int ranks, const Case& what, Ends<T>& ends, const Policies&... policies) {
    const auto all = outcomes(ranks, [&](auto& world) {
        const auto me = static_cast<std::size_t>(world.rank());
        Model<T> model(world, what.sizes, what.gap, what.in_group);
        un::Trainer trainer{world, model, what.buckets, un::FiniteGuard{.action = un::OnOffence::skip}, policies...};
        for (int update = 0; update < 7; ++update) {
            const bool without = what.uneven && update % 3 == 1 && world.rank() == world.size() - 1;
            model.spoils = what.spoiled && update == 2 && world.rank() == world.size() - 1
                               ? std::numeric_limits<float>::quiet_NaN()
                               : 0.f;
            const int seed = 10 * update + world.rank();
            if (without) trainer.step();
            else if (what.micro_batches == 1) trainer.step(seed);
            else trainer.step(seed, seed + 100, seed + 200);
        }
        trainer.verify_replicas();
        std::size_t at = 0;
        for (const auto& one : model.spans)
            for (const T x : one) ends.values[me][at++] = x;
        ends.clean[me] = true;
        for (const auto& one : model.gradient_spans)
            for (const T x : one) ends.clean[me] = ends.clean[me] && x == T{0};
        std::size_t in_state = 0;
        for (const un::Slice& slice : trainer.state().owned()) {
            for (std::size_t i = slice.first; i < slice.end(); ++i, ++in_state) {
                ends.has[me][i] = true;
                if (trainer.state().optimizer_state().size() != 0)
                    ends.state[me][i] = trainer.state().optimizer_state().array(0)[in_state];
            }
        }
        ends.owned[me] = in_state;
        ends.updates[me] = trainer.updates();
    });
    for (const Outcome& one : all) BOOST_TEST(!one.failed, one.what);
}

/// With sharding, all ranks end with the bits of a training in which each rank updates everything,
/// and each rank has its part of the state.
template <class T, class Optimizer, class Sharding, class... Policies>
void same_bits(int ranks, const Case& what, const Optimizer& optimizer, const Sharding& sharding,
               const Policies&... policies) {
    const test::Shared<Ends<T>> whole;
    const test::Shared<Ends<T>> cut;
    train(ranks, what, *whole, optimizer, policies...);
    train(ranks, what, *cut, optimizer, sharding, policies...);
    std::size_t count = 0;
    for (const std::size_t size : what.sizes) count += size;
    std::vector<int> owners(count);
    BOOST_TEST_CONTEXT(ranks << " ranks, " << Optimizer::name << ", gap " << what.gap << ", in group " << what.in_group
                             << ", micro-batches " << what.micro_batches) {
        for (std::size_t rank = 0; rank < static_cast<std::size_t>(ranks); ++rank) {
            BOOST_TEST(std::memcmp(whole->values[0].data(), cut->values[rank].data(), count * sizeof(T)) == 0,
                       "the parameters of rank " << rank << " have other bits");
            BOOST_TEST(cut->clean[rank]);
            BOOST_TEST(cut->updates[rank] == (what.spoiled ? 6u : 7u));
            for (std::size_t i = 0; i < count; ++i) {
                owners[i] += cut->has[rank][i] ? 1 : 0;
                if (cut->has[rank][i] && std::memcmp(&whole->state[0][i], &cut->state[rank][i], sizeof(T)) != 0)
                    BOOST_ERROR("the state of element " << i << " on rank " << rank << " has other bits");
            }
        }
        std::size_t all = 0;
        for (const std::size_t one : cut->owned) all += one;
        const bool sharded = all == count;
        if constexpr (std::is_same_v<Sharding, un::StateSharding>) BOOST_TEST(sharded);
        for (std::size_t i = 0; i < count; ++i)
            BOOST_TEST_REQUIRE(owners[i] == (sharded ? 1 : ranks), "element " << i << " is updated by " << owners[i]);
    }
}

const un::Adam adam{.learning_rate = 0.01};
const un::Sgd sgd{.learning_rate = 0.01, .momentum = 0.9};

} // namespace

BOOST_AUTO_TEST_SUITE(sharded_updates)

BOOST_AUTO_TEST_CASE(every_optimizer) {
    for (const int ranks : {1, 2, 3, 5}) {
        const un::StateSharding sharding;
        same_bits<float>(ranks, {}, sgd, sharding);
        same_bits<float>(ranks, {}, un::Sgd{.learning_rate = 0.01}, sharding); // without state
        same_bits<float>(ranks, {}, adam, sharding);
        same_bits<float>(ranks, {}, un::AdamW{.learning_rate = 0.01}, sharding);
        same_bits<float>(ranks, {}, un::Adagrad{.learning_rate = 0.01}, sharding);
        same_bits<float>(ranks, {}, un::RmsProp{.learning_rate = 0.01, .momentum = 0.5}, sharding);
    }
}

BOOST_AUTO_TEST_CASE(wherever_the_model_lies) {
    for (const int ranks : {2, 4})
        for (const std::size_t gap : {0u, 3u})
            for (const bool in_group : {false, true})
                for (const int micro_batches : {1, 3}) {
                    const Case what{.gap = gap, .in_group = in_group, .micro_batches = micro_batches};
                    same_bits<float>(ranks, what, sgd, un::StateSharding{});
                    same_bits<double>(ranks, what, adam, un::StateSharding{});
                }
}

BOOST_AUTO_TEST_CASE(ragged_sizes) {
    for (const int ranks : {2, 3, 5}) {
        same_bits<float>(ranks, {.sizes = {1}}, sgd, un::StateSharding{}); // most own nothing
        same_bits<float>(ranks, {.sizes = {17, 31}, .buckets = {.first_bytes = 1, .bytes = 1}}, sgd,
                         un::StateSharding{});
        same_bits<double>(ranks, {.sizes = {3, 999, 2}, .buckets = {}}, sgd, un::StateSharding{});
    }
}

BOOST_AUTO_TEST_CASE(uneven_ranks_and_guards) {
    same_bits<float>(3, {.uneven = true}, sgd, un::StateSharding{});
    same_bits<float>(2, {.micro_batches = 3, .uneven = true}, adam, un::StateSharding{});
    same_bits<float>(2, {.spoiled = true}, adam, un::StateSharding{});
    same_bits<float>(3, {.gap = 1, .micro_batches = 3, .spoiled = true}, sgd, un::StateSharding{});
}

// Two addends have one sum in any order, so any reducer gives it.
BOOST_AUTO_TEST_CASE(any_reducer_on_two_ranks) {
    same_bits<float>(2, {}, sgd, un::StateSharding{}, un::RingReducer{.chunk_bytes = 256});
    // It has no reduce_scatter, so it reduces slice by slice.
    same_bits<float>(2, {}, sgd, un::StateSharding{}, un::TreeReducer{});
    same_bits<float>(2, {}, sgd, un::StateSharding{}, un::HalvingDoublingReducer{});
    same_bits<float>(2, {}, sgd, un::StateSharding{}, un::AutomaticReducer{});
}

BOOST_AUTO_TEST_CASE(chosen_at_run_time) {
    for (const bool shard : {false, true}) {
        const test::OwnersOrAll choice{.sharded = shard};
        same_bits<float>(2, {}, sgd, choice);
        same_bits<float>(3, {.gap = 2, .micro_batches = 3}, adam, choice);
        same_bits<double>(3, {.in_group = true, .micro_batches = 3}, adam, choice);
        same_bits<float>(1, {}, sgd, choice);
        const test::Shared<std::array<std::size_t, 2>> held;
        const auto all = outcomes(2, [&](auto& world) {
            Model<float> model(world, {100, 100}, 0, false);
            un::Trainer trainer{world, model, sgd, choice};
            held->at(static_cast<std::size_t>(world.rank())) = trainer.state().optimizer_state().count();
        });
        for (const Outcome& one : all) BOOST_TEST(!one.failed, one.what);
        BOOST_TEST(held->at(0) == (shard ? 112u : 200u));
        BOOST_TEST(held->at(1) == (shard ? 88u : 200u));
    }
}

BOOST_AUTO_TEST_CASE(shapes_that_differ_are_named) {
    const auto all = outcomes(2, [](auto& world) {
        Model<float> model(world, {100, world.rank() == 0 ? 7u : 8u}, 0, false);
        un::Trainer trainer{world, model, sgd, un::StateSharding{}};
    });
    for (const Outcome& one : all)
        BOOST_TEST(one.says("parameter 1 has 8 elements on rank 1 and 7 on rank 0"), one.what);
}

BOOST_AUTO_TEST_CASE(a_rank_that_throws_before_it_publishes) {
    const auto all = outcomes(3, [](auto& world) {
        HarmedUpdate::updates = 0;
        HarmedUpdate::harmed = world.rank() == 1;
        Model<float> model(world, {37, 500}, 0, false);
        un::Trainer trainer{world, model, sgd, un::StateSharding{}, HarmedUpdate{}};
        if (const std::string text = trainer.describe(); text.find("by an exception") == std::string::npos)
            throw std::runtime_error(text);
        for (int update = 0; update < 5; ++update) trainer.step(update);
    });
    for (std::size_t rank = 0; rank < 3; ++rank) {
        BOOST_TEST(all[rank].failed);
        BOOST_TEST(all[rank].says("no more"), all[rank].what);
        if (rank == 1) continue;
        BOOST_TEST((all[rank].code == un::ErrorCode::aborted), all[rank].what);
        BOOST_TEST(all[rank].rank == 1);
    }
}

BOOST_AUTO_TEST_CASE(a_rank_that_is_killed_before_it_publishes) {
    if constexpr (!test::on_processes) {
        test::skip("ranks are threads here");
    } else {
        struct Told {
            bool lost;
            int who;
        };
        const test::Shared<std::array<Told, 3>> told;
        constexpr std::chrono::seconds deadline{30};
        const auto begin = std::chrono::steady_clock::now();
        try {
            test::run(3,
                      [&](auto& world) {
                          HarmedUpdate::updates = 0;
                          HarmedUpdate::harmed = world.rank() == 1;
                          Model<float> model(world, {37, 500}, 0, false);
                          un::Trainer trainer{world, model, sgd, un::StateSharding{}, HarmedUpdate{.kills = true}};
                          try {
                              for (int update = 0; update < 5; ++update) trainer.step(update);
                          } catch (const un::error& failed) {
                              told->at(static_cast<std::size_t>(world.rank())) = {
                                  failed.code() == un::ErrorCode::peer_lost, failed.why().peer};
                              throw;
                          }
                      },
                      {.timeout = deadline});
            BOOST_ERROR("a killed rank was not noticed");
        } catch (const un::error& failed) {
            BOOST_TEST((failed.code() == un::ErrorCode::peer_lost), failed.what());
        }
        for (const std::size_t rank : {0u, 2u}) {
            BOOST_TEST(told->at(rank).lost);
            BOOST_TEST(told->at(rank).who == 1);
        }
        BOOST_TEST((std::chrono::steady_clock::now() - begin < deadline));
    }
}

BOOST_AUTO_TEST_SUITE_END()

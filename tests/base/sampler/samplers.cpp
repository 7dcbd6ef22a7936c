#include "unisono/sampler/samplers.hpp"
#include "unisono/testing/sampler_laws.hpp"

#include "support/allocation_counter.hpp"
#include "support/reference.hpp"
#include "support/refusal.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <numeric>

namespace un = unisono;
using test::refusal_of;
using namespace unisono::testing;

namespace own { // not anonymous, or clang would call its comparison unneeded

/// An order of its own: epoch e begins with sample e, and goes backwards.
struct BackwardSampler {
    static constexpr std::string_view name = "backward";
    static constexpr un::Family family = un::Family::sampler;
    friend bool operator==(const BackwardSampler&, const BackwardSampler&) = default;

    [[nodiscard]] static std::int64_t replicas_per_rank() { return 1; }
    [[nodiscard]] auto stream(const un::SamplerShape& shape, un::Epoch epoch, std::int64_t consumed = 0) const {
        return un::OrderedStream<BackwardSampler>(*this, shape, epoch, consumed);
    }
    static void draw(un::Epoch epoch, std::span<std::size_t> order) {
        const auto first = static_cast<std::size_t>(epoch.number()) % order.size();
        std::rotate(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(first) + 1, order.end());
        std::reverse(order.begin(), order.end());
    }
};
static_assert(un::sampler_policy<BackwardSampler>);

} // namespace own

namespace {

using Indices = std::vector<std::size_t>;

/// The samples of one round after another, sorted within each round: what training sees, whichever
/// rank computes it.
std::vector<Indices> by_rounds(const std::vector<std::vector<Kept>>& ranks) {
    std::vector<Indices> rounds;
    for (const auto& rank : ranks)
        for (const Kept& kept : rank) {
            const auto k = static_cast<std::size_t>(kept.micro.round);
            if (rounds.size() <= k) rounds.resize(k + 1);
            rounds[k].insert(rounds[k].end(), kept.samples.begin(), kept.samples.end());
        }
    for (auto& round : rounds) std::sort(round.begin(), round.end());
    return rounds;
}

/// Every sampler with every one of its settings, under the same laws.
template <class F>
void for_each_sampler(F&& f) {
    f(un::SequentialSampler{}, Coverage::exact);
    f(un::EvaluationSampler{}, Coverage::exact);
    f(own::BackwardSampler{}, Coverage::exact);
    for (const bool shuffle : {false, true}) {
        for (const bool drop_last : {false, true}) {
            const Coverage padded = drop_last ? Coverage::cut : Coverage::padded;
            f(un::DistributedSampler{.shuffle = shuffle, .seed = 3, .drop_last = drop_last}, padded);
            for (const std::int64_t n : {1, 2, 3})
                f(un::InterleavedSampler{.replicas = n, .shuffle = shuffle, .seed = 3, .drop_last = drop_last}, padded);
            f(un::ScatterSampler{.shuffle = shuffle, .seed = 3, .drop_last = drop_last},
              drop_last ? Coverage::cut : Coverage::exact);
        }
    }
}

template <class F>
void for_each_setting(F&& f) {
    for (const std::int64_t n : {1, 2, 7, 12, 25})
        for (const std::int64_t batch : {1, 2, 4, 5, 12})
            for (const std::int64_t world : {1, 2, 3, 5, 8})
                if (batch <= n) f(SamplerSetting{n, batch, world, 1});
}

Indices joined(const std::vector<Kept>& all) {
    Indices out;
    for (const Kept& kept : all) out.insert(out.end(), kept.samples.begin(), kept.samples.end());
    return out;
}

void check_contains(const std::string& text, std::initializer_list<std::string_view> parts) {
    for (const std::string_view part : parts)
        BOOST_CHECK_MESSAGE(text.find(part) != std::string::npos, "\"" << text << "\" lacks \"" << part << "\"");
}

template <class S>
concept gives_samples_without_an_epoch =
    requires(const S& sampler, const un::SamplerShape& shape) { sampler.stream(shape); };
template <class S>
concept takes_a_bare_number = requires(const S& sampler, const un::SamplerShape& shape) { sampler.stream(shape, 1); };
static_assert(!gives_samples_without_an_epoch<un::DistributedSampler>);
static_assert(!takes_a_bare_number<un::DistributedSampler>);

} // namespace

BOOST_AUTO_TEST_SUITE(samplers)

BOOST_AUTO_TEST_CASE(every_sampler_keeps_its_books_and_covers_the_data) {
    std::size_t checked = 0;
    for_each_sampler([&](const auto& sampler, Coverage coverage) {
        for_each_setting([&](const SamplerSetting& s) {
            std::vector<int> given;
            const auto wrong = sampler_books(sampler, s, given);
            BOOST_REQUIRE_MESSAGE(!wrong, std::string(sampler.name) << ": " << *wrong);
            const std::int64_t replicas = s.world * sampler.replicas_per_rank();
            const std::int64_t sum = std::accumulate(given.begin(), given.end(), std::int64_t{0});
            const auto [least, most] = std::minmax_element(given.begin(), given.end());
            BOOST_TEST_CONTEXT(std::string(sampler.name) << " " << text(s)) {
                switch (coverage) {
                case Coverage::exact: BOOST_REQUIRE(*least == 1 && *most == 1); break;
                case Coverage::padded:
                    BOOST_REQUIRE(*least >= 1 && *most <= *least + 1);
                    BOOST_REQUIRE_EQUAL(sum, (s.data_size + replicas - 1) / replicas * replicas);
                    break;
                case Coverage::cut: {
                    BOOST_REQUIRE(*most <= 1);
                    const std::int64_t unit = sampler.name == un::ScatterSampler::name ? s.batch_size : replicas;
                    BOOST_REQUIRE_EQUAL(sum, s.data_size / unit * unit);
                } break;
                case Coverage::subset: BOOST_FAIL("no sampler of the library chooses"); break;
                }
            }
            ++checked;
        });
    });
    BOOST_TEST_MESSAGE(checked << " settings");
    BOOST_CHECK(checked > 1000);
}

BOOST_AUTO_TEST_CASE(every_sampler_resumes_at_every_round) {
    for_each_sampler([&](const auto& sampler, Coverage) {
        for_each_setting([&](const SamplerSetting& s) {
            const auto wrong = sampler_resumes(sampler, s);
            BOOST_REQUIRE_MESSAGE(!wrong, std::string(sampler.name) << ": " << *wrong);
        });
    });
}

BOOST_AUTO_TEST_CASE(every_sampler_resumes_at_every_sample_with_another_world) {
    for_each_sampler([&](const auto& sampler, Coverage coverage) {
        for_each_setting([&](const SamplerSetting& s) {
            for (const std::int64_t new_world : {1, 2, 3}) {
                const auto wrong = sampler_rests(sampler, s, new_world, coverage);
                BOOST_REQUIRE_MESSAGE(!wrong, std::string(sampler.name) << ": " << *wrong);
            }
        });
    });
}

// Also at each sample of a replica's own list: with the same number of replicas, its list
// continues.
BOOST_AUTO_TEST_CASE(a_replicas_list_goes_on_from_each_of_its_samples) {
    const un::DistributedSampler sampler{.seed = 9};
    for (std::int64_t replica = 0; replica < 3; ++replica) {
        const un::SamplerShape shape{.data_size = 26, .batch_size = 4, .replicas = 3, .replica = replica};
        auto whole = sampler.stream(shape, un::Epoch{2});
        const Indices list = joined(drain(whole));
        BOOST_REQUIRE_EQUAL(list.size(), 9u);
        for (std::int64_t done = 0; done < 9; ++done) {
            whole.restart(un::Epoch{2}, done * 3);
            const Indices rest = joined(drain(whole));
            BOOST_CHECK_EQUAL_COLLECTIONS(rest.begin(), rest.end(), list.begin() + done, list.end());
        }
    }
}

BOOST_AUTO_TEST_CASE(the_same_names_give_the_same_stream_and_other_epochs_and_seeds_another) {
    for_each_sampler([&](const auto& sampler, Coverage) {
        const SamplerSetting s{25, 4, 2, 3};
        const auto once = all_ranks(sampler, s);
        BOOST_REQUIRE(once == all_ranks(sampler, s));
        if constexpr (requires { sampler.shuffle; }) {
            const bool same = by_rounds(once) == by_rounds(all_ranks(sampler, {25, 4, 2, 4}));
            BOOST_CHECK_EQUAL(same, !sampler.shuffle);
            auto reseeded = sampler;
            reseeded.seed += 100;
            BOOST_CHECK_EQUAL(by_rounds(once) == by_rounds(all_ranks(reseeded, s)), !sampler.shuffle);
        }
    });
}

BOOST_AUTO_TEST_CASE(distributed_sampler_is_pytorchs) {
    std::size_t cases = 0;
    for (const auto& section : unisono_test::reference().at("sampler")) {
        const un::DistributedSampler sampler{.shuffle = section.at("shuffle").get<bool>(),
                                             .seed = section.at("seed").get<std::uint64_t>(),
                                             .drop_last = section.at("drop_last").get<bool>()};
        const auto n = section.at("n").get<std::int64_t>();
        const auto world = section.at("world").get<std::int64_t>();
        for (const std::int64_t batch : {std::int64_t{1}, std::min<std::int64_t>(3, n), n}) {
            const auto ranks = all_ranks(sampler, {n, batch, world, section.at("epoch").get<std::int64_t>()});
            for (std::size_t r = 0; r < ranks.size(); ++r) {
                const auto expected = section.at("ranks")[r].get<Indices>();
                const Indices ours = joined(ranks[r]);
                BOOST_REQUIRE_EQUAL_COLLECTIONS(ours.begin(), ours.end(), expected.begin(), expected.end());
            }
        }
        ++cases;
    }
    BOOST_CHECK_EQUAL(cases, 160u);
}

// The oracle does not use the library: the padded order as FIELD defines it, list by list, cut by
// cut.
BOOST_AUTO_TEST_CASE(interleaved_puts_the_micro_batches_of_many_ranks_into_the_same_updates) {
    std::size_t checked = 0;
    for (std::int64_t n_data = 1; n_data <= 23; ++n_data)
        for (const std::int64_t world : {1, 2, 3})
            for (const std::int64_t n : {1, 2, 3, 4, 7})
                for (const std::int64_t batch : {1, 2, 3, 4, 5, 8})
                    for (const bool shuffle : {false, true})
                        for (const bool drop_last : {false, true})
                            for (const std::int64_t epoch : {0, 2}) {
                                if (batch > n_data) continue;
                                const un::DistributedSampler many{
                                    .shuffle = shuffle, .seed = 5, .drop_last = drop_last};
                                const un::InterleavedSampler few{
                                    .replicas = n, .shuffle = shuffle, .seed = 5, .drop_last = drop_last};
                                const auto wide = all_ranks(many, {n_data, batch, world * n, epoch});
                                const auto narrow = all_ranks(few, {n_data, batch, world, epoch});
                                const std::size_t updates = wide[0].size();
                                for (const auto& rank : narrow)
                                    BOOST_REQUIRE_EQUAL(rank.size(), updates * static_cast<std::size_t>(n));
                                for (std::size_t k = 0; k < updates; ++k)
                                    for (std::size_t replica = 0; replica < wide.size(); ++replica) {
                                        const auto& host = narrow[replica / static_cast<std::size_t>(n)];
                                        const auto& kept = host[k * static_cast<std::size_t>(n) +
                                                                replica % static_cast<std::size_t>(n)];
                                        BOOST_REQUIRE(kept.samples == wide[replica][k].samples);
                                        BOOST_REQUIRE_EQUAL(kept.micro.replica, static_cast<std::int64_t>(replica));
                                        BOOST_REQUIRE_EQUAL(kept.micro.round_samples,
                                                            wide[replica][k].micro.round_samples);
                                        BOOST_REQUIRE(kept.micro.resume == wide[replica][k].micro.resume);
                                    }
                                ++checked;
                            }
    BOOST_TEST(checked == 14'520u); // 121 pairs of n_data and batch
}

BOOST_AUTO_TEST_CASE(sequential_gives_every_l_th_sample_and_leaves_the_end_uneven) {
    const auto ranks = all_ranks(un::SequentialSampler{}, {7, 2, 3, 0});
    BOOST_CHECK((joined(ranks[0]) == Indices{0, 3, 6}));
    BOOST_CHECK((joined(ranks[1]) == Indices{1, 4}));
    BOOST_CHECK((joined(ranks[2]) == Indices{2, 5}));
    BOOST_REQUIRE_EQUAL(ranks[1].size(), 2u); // as many rounds as rank 0, the last one without data
    BOOST_CHECK(ranks[1][1].samples.empty());
    BOOST_CHECK_EQUAL(ranks[1][1].micro.round_samples, 1);
}

BOOST_AUTO_TEST_CASE(an_order_of_ones_own_is_drawn_anew_for_each_epoch) {
    auto stream = own::BackwardSampler{}.stream({.data_size = 5, .batch_size = 5}, un::Epoch{1});
    BOOST_TEST(joined(drain(stream)) == (Indices{1, 0, 4, 3, 2}), boost::test_tools::per_element());
    stream.restart(un::Epoch{1}, 2);
    BOOST_TEST(joined(drain(stream)) == (Indices{4, 3, 2}), boost::test_tools::per_element());
    stream.restart(un::Epoch{3});
    BOOST_TEST(joined(drain(stream)) == (Indices{3, 2, 1, 0, 4}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(scatter_cuts_as_torch_chunk) {
    // chunk(5 samples, 4) = 2, 2, 1 and nothing for the fourth; then chunk(2 samples, 4) = 1, 1.
    const auto ranks = all_ranks(un::ScatterSampler{.shuffle = false}, {7, 5, 4, 0});
    BOOST_CHECK((ranks[0][0].samples == Indices{0, 1}));
    BOOST_CHECK((ranks[1][0].samples == Indices{2, 3}));
    BOOST_CHECK((ranks[2][0].samples == Indices{4}));
    BOOST_CHECK(ranks[3][0].samples.empty());
    BOOST_CHECK((ranks[0][1].samples == Indices{5}));
    BOOST_CHECK((ranks[1][1].samples == Indices{6}));
    BOOST_CHECK(ranks[2][1].samples.empty());
    BOOST_CHECK(ranks[3][1].samples.empty());
    BOOST_CHECK_EQUAL(all_ranks(un::ScatterSampler{.drop_last = true}, {7, 5, 4, 0})[0].size(), 1u);
}

BOOST_AUTO_TEST_CASE(evaluation_is_contiguous_in_replica_order) {
    for_each_setting([&](const SamplerSetting& s) {
        const auto ranks = all_ranks(un::EvaluationSampler{}, s);
        Indices gathered; // round by round, rank by rank: data-set order
        for (std::size_t k = 0; k < ranks[0].size(); ++k)
            for (const auto& rank : ranks)
                gathered.insert(gathered.end(), rank[k].samples.begin(), rank[k].samples.end());
        Indices expected(static_cast<std::size_t>(s.data_size));
        std::iota(expected.begin(), expected.end(), std::size_t{0});
        BOOST_REQUIRE_EQUAL_COLLECTIONS(gathered.begin(), gathered.end(), expected.begin(), expected.end());
    });
}

BOOST_AUTO_TEST_CASE(one_rank_that_hosts_all_replicas_sees_what_they_would_see) {
    const un::SequentialSampler sampler;
    auto host =
        sampler.stream({.data_size = 11, .batch_size = 2, .replicas = 4, .replica = 0, .hosted = 4}, un::Epoch{0});
    const auto one = drain(host);
    for (std::int64_t r = 0; r < 4; ++r) {
        auto own = sampler.stream({.data_size = 11, .batch_size = 2, .replicas = 4, .replica = r}, un::Epoch{0});
        const auto alone = drain(own);
        for (std::size_t k = 0; k < alone.size(); ++k)
            BOOST_CHECK(one[k * 4 + static_cast<std::size_t>(r)].samples == alone[k].samples);
    }
}

BOOST_AUTO_TEST_CASE(fewer_samples_than_replicas) {
    const auto padded = all_ranks(un::DistributedSampler{.shuffle = false}, {3, 1, 8, 0});
    Indices all;
    for (const auto& rank : padded) all.push_back(joined(rank).at(0));
    BOOST_CHECK((all == Indices{0, 1, 2, 0, 1, 2, 0, 1}));
    for (const auto& rank : all_ranks(un::DistributedSampler{.drop_last = true}, {3, 1, 8, 0}))
        BOOST_CHECK(rank.empty());
    const auto uneven = all_ranks(un::EvaluationSampler{}, {3, 1, 8, 0});
    BOOST_CHECK(uneven[7].size() == 1 && uneven[7][0].samples.empty());
}

// The deals, tails and sizes of rounds that a sampler of one's own may ask for.
BOOST_AUTO_TEST_CASE(every_plan_has_room_for_its_rounds) {
    using un::sampling::Deal, un::sampling::Tail;
    for (const Deal deal : {Deal::strided, Deal::blocks})
        for (const Tail tail : {Tail::keep, Tail::pad, Tail::drop})
            for (const std::int64_t size : {1, 2, 7, 10})
                for (const std::int64_t batch : {std::int64_t{1}, size})
                    for (const std::int64_t replicas : {1, 3, 8})
                        for (const std::int64_t global : {0, 1, 5, 100}) {
                            const un::SamplerShape shape{
                                .data_size = size, .batch_size = batch, .replicas = replicas, .hosted = replicas};
                            un::SampleStream stream(
                                {.shape = shape, .deal = deal, .tail = tail, .global_batch = global}, un::Epoch{0}, 0);
                            std::int64_t given = 0;
                            while (!stream.done()) given += std::ssize(stream.next().samples);
                            BOOST_REQUIRE_EQUAL(given, stream.samples());
                            if (tail == Tail::pad)
                                BOOST_REQUIRE_EQUAL(given, (size + replicas - 1) / replicas * replicas);
                        }
    const auto planned = [](const un::sampling::Plan& plan) {
        return refusal_of([&] { return un::SampleStream(plan, un::Epoch{0}, 0); });
    };
    check_contains(planned({.shape = {.data_size = 10, .batch_size = 2, .replicas = 0}}),
                   {"SampleStream: replicas is 0, expected 1 to 2^31 - 1"});
    check_contains(planned({.shape = {.data_size = 10, .batch_size = 2}, .global_batch = -4}),
                   {"SampleStream: global_batch is -4, expected 0 to 2^60"});
}

BOOST_AUTO_TEST_CASE(bad_shapes_are_refused_by_name) {
    const auto shaped = [](un::SamplerShape shape) {
        return refusal_of([&] { return un::SequentialSampler{}.stream(shape, un::Epoch{0}); });
    };
    const un::SamplerShape good{.data_size = 10, .batch_size = 2, .replicas = 4, .replica = 1};
    auto bad = good;
    bad.data_size = 0;
    check_contains(shaped(bad), {"bad_input", "SequentialSampler", "empty", "data_size is 0"});
    bad.data_size = -1;
    check_contains(shaped(bad), {"data_size is -1", "expected 1"});
    // The result of -1 after conversions.
    bad.data_size = static_cast<std::int64_t>(static_cast<std::size_t>(-1));
    check_contains(shaped(bad), {"data_size is -1"});
    bad.data_size = std::int64_t{1} << 60;
    check_contains(shaped(bad), {"data_size is 1152921504606846976", "2^48"});
    bad = good;
    bad.batch_size = 0;
    check_contains(shaped(bad), {"batch_size is 0", "1 or more"});
    bad.batch_size = -4;
    check_contains(shaped(bad), {"batch_size is -4"});
    bad.batch_size = 11;
    check_contains(shaped(bad), {"batch_size is 11", "data_size", "10"});
    bad = good;
    bad.replicas = 0;
    check_contains(shaped(bad), {"replicas is 0"});
    bad.replicas = std::int64_t{1} << 40;
    check_contains(shaped(bad), {"replicas is 1099511627776"});
    bad = good;
    bad.replica = 4;
    check_contains(shaped(bad), {"replica is 4", "0 to 3"});
    bad.replica = -1;
    check_contains(shaped(bad), {"replica is -1"});
    bad = good;
    bad.hosted = 4;
    check_contains(shaped(bad), {"hosted is 4", "1 to 3"});
    bad.hosted = 0;
    check_contains(shaped(bad), {"hosted is 0"});
}

BOOST_AUTO_TEST_CASE(every_sampler_refuses_bad_shapes_itself) {
    for_each_sampler([&](const auto& sampler, Coverage) {
        const un::SamplerShape shape{
            .data_size = 3, .batch_size = 5, .replicas = 4, .replica = 0, .hosted = sampler.replicas_per_rank()};
        check_contains(refusal_of([&] { return sampler.stream(shape, un::Epoch{0}); }),
                       {sampler.name, "batch_size is 5", "3"});
    });
}

BOOST_AUTO_TEST_CASE(bad_worlds_and_ranks_are_refused_by_name) {
    const un::InterleavedSampler two{.replicas = 2};
    check_contains(refusal_of([&] { un::shape_of_rank(two, 10, 2, 0, 0); }), {"world is 0"});
    check_contains(refusal_of([&] { un::shape_of_rank(two, 10, 2, -1, 0); }), {"world is -1"});
    check_contains(refusal_of([&] { un::shape_of_rank(two, 10, 2, 2, 2); }), {"rank is 2", "0 to 1"});
    check_contains(refusal_of([&] { un::shape_of_rank(two, 10, 2, 2, -1); }), {"rank is -1"});
    check_contains(refusal_of([&] { un::shape_of_rank(two, 10, 2, std::int64_t{1} << 62, 0); }), {"too many"});
    check_contains(refusal_of([&] { un::shape_of_rank(un::InterleavedSampler{.replicas = 0}, 10, 2, 2, 0); }),
                   {"InterleavedSampler", "replicas is 0"});
    check_contains(refusal_of([&] { un::shape_of_rank(un::InterleavedSampler{.replicas = -3}, 10, 2, 2, 0); }),
                   {"replicas is -3"});
    check_contains(refusal_of([&] {
                       return two.stream({.data_size = 10, .batch_size = 2, .replicas = 4, .replica = 0, .hosted = 1},
                                         un::Epoch{0});
                   }),
                   {"hosted = 1", "replicas, which is 2"});
    BOOST_CHECK((un::shape_of_rank(two, 10, 3, 4, 3) ==
                 un::SamplerShape{.data_size = 10, .batch_size = 3, .replicas = 8, .replica = 6, .hosted = 2}));
}

BOOST_AUTO_TEST_CASE(bad_positions_and_epochs_are_refused) {
    check_contains(refusal_of([] { un::Epoch{-1}; }), {"epoch", "-1"});
    auto stream = un::DistributedSampler{}.stream({.data_size = 10, .batch_size = 2, .replicas = 3}, un::Epoch{0});
    check_contains(refusal_of([&] { stream.restart(un::Epoch{4}, 11); }),
                   {"sample 11", "epoch 4", "0 to data_size", "10"});
    check_contains(refusal_of([&] { stream.restart(un::Epoch{0}, -1); }), {"sample -1"});
    // The end is a position, too: nothing is left, and nothing padded.
    stream.restart(un::Epoch{0}, 10);
    BOOST_CHECK(stream.done());
    BOOST_CHECK_EQUAL(stream.rounds(), 0);
    check_contains(refusal_of([&] { stream.next(); }), {"epoch 0", "no more samples", "restart"});
}

BOOST_AUTO_TEST_CASE(a_restart_within_a_round_begins_with_the_first_replica) {
    const un::InterleavedSampler sampler{.replicas = 3};
    auto stream = sampler.stream(un::shape_of_rank(sampler, 20, 2, 2, 1), un::Epoch{1});
    auto fresh = stream;
    const auto expected = drain(fresh);
    stream.next();
    stream.next();
    BOOST_CHECK((stream.position() == un::Position{un::Epoch{1}, 0})); // the round is not done
    stream.restart(un::Epoch{1});
    BOOST_CHECK(drain(stream) == expected);
}

BOOST_AUTO_TEST_CASE(nothing_is_allocated_once_the_stream_is_made) {
    for_each_sampler([&](const auto& sampler, Coverage) {
        auto stream = sampler.stream(un::shape_of_rank(sampler, 1000, 7, 3, 1), un::Epoch{0}, 500);
        const std::size_t before = unisono_test::allocations_of_thread();
        std::size_t samples = 0;
        for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
            stream.restart(un::Epoch{epoch});
            while (!stream.done()) samples += stream.next().samples.size();
        }
        BOOST_CHECK_EQUAL(unisono_test::allocations_of_thread() - before, 0u);
        BOOST_CHECK(samples > 900);
    });
}

BOOST_AUTO_TEST_CASE(a_batch_times_a_world_beyond_all_bounds_is_one_round) {
    const std::int64_t many = (std::int64_t{1} << 31) - 1;
    const std::int64_t size = std::int64_t{1} << 40;
    auto stream = un::SequentialSampler{}.stream(
        {.data_size = size, .batch_size = std::int64_t{1} << 38, .replicas = many, .replica = many - 1}, un::Epoch{0});
    BOOST_CHECK_EQUAL(stream.rounds(), 1);
    const auto micro = stream.next();
    BOOST_CHECK_EQUAL(micro.round_samples, size);
    BOOST_CHECK_EQUAL(micro.samples.size(), static_cast<std::size_t>((size - many) / many + 1));
    BOOST_CHECK(micro.ends_epoch);
}

BOOST_AUTO_TEST_SUITE_END()

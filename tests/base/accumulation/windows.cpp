#include "unisono/accumulation/accumulation.hpp"

#include "support/refusal.hpp"

#include <boost/test/unit_test.hpp>

#include <optional>
#include <vector>

namespace un = unisono;
using test::refusal_of;

namespace {

/// The laws of accumulation.hpp for any policy. Adds `rounds` one after another, and returns after
/// which of them (from 0) updates were made. The last update may be short.
template <un::accumulation_policy Policy>
std::vector<std::size_t> updates(const Policy& policy, const std::vector<un::Totals>& rounds, std::int64_t hosted = 1) {
    std::vector<std::size_t> at;
    auto window = policy.window(hosted);
    const auto fresh = policy.window(hosted);
    un::Totals sum;
    BOOST_CHECK(!window.closed() && !window.due_at_end());
    for (std::size_t k = 0; k < rounds.size(); ++k) {
        const bool foretold = window.would_close(rounds[k]);
        window.add(rounds[k]);
        sum = sum + rounds[k];
        BOOST_CHECK_EQUAL(window.closed(), foretold);
        BOOST_CHECK(window.totals() == sum);
        if (window.closed()) {
            BOOST_CHECK(window.due_at_end());
            at.push_back(k);
            window.reset();
            sum = {};
            BOOST_CHECK(window.totals() == fresh.totals());
            BOOST_CHECK(!window.closed() && !window.due_at_end());
        }
    }
    if (window.due_at_end()) at.push_back(rounds.size() - 1);
    return at;
}

using At = std::vector<std::size_t>;

std::vector<un::Totals> rounds_of(std::initializer_list<std::int64_t> samples, std::int64_t micro_batches = 1) {
    std::vector<un::Totals> rounds;
    for (const std::int64_t n : samples)
        rounds.push_back({.micro_batches = micro_batches, .samples = n, .tokens = 10 * n});
    return rounds;
}

} // namespace

BOOST_AUTO_TEST_SUITE(accumulation)

BOOST_AUTO_TEST_CASE(without_accumulation_each_round_is_an_update) {
    BOOST_CHECK((updates(un::NoAccumulation{}, rounds_of({4, 4, 1})) == At{0, 1, 2}));
    BOOST_CHECK((updates(un::NoAccumulation{}, rounds_of({4, 4, 1}, 3), 3) == At{0, 1, 2}));
}

BOOST_AUTO_TEST_CASE(steps_count_the_micro_batches_of_a_rank) {
    const auto rounds = rounds_of({4, 4, 4, 4, 4, 4, 2});
    BOOST_CHECK((updates(un::Accumulate{}, rounds) == At{0, 1, 2, 3, 4, 5, 6}));
    BOOST_CHECK((updates(un::Accumulate{.steps = 3}, rounds) == At{2, 5, 6}));
    BOOST_CHECK((updates(un::Accumulate{.steps = 3, .short_window = un::ShortWindow::drop}, rounds) == At{2, 5}));
    BOOST_CHECK((updates(un::Accumulate{.steps = 7, .short_window = un::ShortWindow::drop}, rounds) == At{6}));
    BOOST_CHECK((updates(un::Accumulate{.steps = 100}, rounds) == At{6}));
    BOOST_CHECK(updates(un::Accumulate{.steps = 100, .short_window = un::ShortWindow::drop}, rounds).empty());
    // Two replicas per rank: a round is two micro-batches.
    BOOST_CHECK((updates(un::Accumulate{.steps = 2}, rounds_of({4, 4, 4}, 2), 2) == At{0, 1, 2}));
    BOOST_CHECK((updates(un::Accumulate{.steps = 4}, rounds_of({4, 4, 4}, 2), 2) == At{1, 2}));
}

BOOST_AUTO_TEST_CASE(samples_are_those_of_all_ranks_and_rounds_are_not_split) {
    const auto rounds = rounds_of({6, 6, 6, 6, 6, 3});
    BOOST_CHECK((updates(un::AccumulateSamples{.samples = 12}, rounds) == At{1, 3, 5}));
    BOOST_CHECK((updates(un::AccumulateSamples{.samples = 13}, rounds) == At{2, 5}));
    BOOST_CHECK((updates(un::AccumulateSamples{.samples = 1}, rounds) == At{0, 1, 2, 3, 4, 5}));
    BOOST_CHECK(
        (updates(un::AccumulateSamples{.samples = 25, .short_window = un::ShortWindow::drop}, rounds) == At{4}));
}

BOOST_AUTO_TEST_CASE(tokens_vary_by_the_round) {
    const std::vector<un::Totals> rounds = {{1, 4, 900}, {1, 4, 50}, {1, 4, 50}, {1, 4, 0}, {1, 4, 1000}, {1, 4, 1}};
    BOOST_CHECK((updates(un::AccumulateTokens{.tokens = 1000}, rounds) == At{2, 4, 5}));
    BOOST_CHECK(
        (updates(un::AccumulateTokens{.tokens = 1000, .short_window = un::ShortWindow::drop}, rounds) == At{2, 4}));
    static_assert(un::AccumulateTokens::counts_tokens && !un::AccumulateSamples::counts_tokens);
}

BOOST_AUTO_TEST_CASE(a_window_without_a_sample_is_no_update) {
    auto window = un::Accumulate{.steps = 2}.window();
    window.add({.micro_batches = 1, .samples = 0});
    BOOST_CHECK(!window.due_at_end());
}

BOOST_AUTO_TEST_CASE(policies_compare_as_values) {
    BOOST_CHECK((un::Accumulate{.steps = 2} == un::Accumulate{.steps = 2}));
    BOOST_CHECK((!(un::Accumulate{.steps = 2} == un::Accumulate{.steps = 3})));
}

BOOST_AUTO_TEST_CASE(bad_targets_are_refused_by_name) {
    const auto contains = [](const std::string& text, const char* part) {
        BOOST_CHECK_MESSAGE(text.find(part) != std::string::npos, "\"" << text << "\" lacks \"" << part << "\"");
    };
    contains(refusal_of([] { return un::Accumulate{.steps = 0}.window(); }),
             "Accumulate: steps is 0, expected 1 or more");
    contains(refusal_of([] { return un::Accumulate{.steps = -2}.window(); }), "steps is -2");
    contains(refusal_of([] { return un::Accumulate{.steps = 3}.window(2); }),
             "steps is 3, expected a multiple of the 2");
    contains(refusal_of([] { return un::Accumulate{.steps = 3}.window(0); }), "hosted is 0");
    contains(refusal_of([] { return un::NoAccumulation{}.window(-1); }), "hosted is -1");
    contains(refusal_of([] { return un::AccumulateSamples{.samples = -1}.window(); }),
             "AccumulateSamples: samples is -1");
    contains(refusal_of([] { return un::AccumulateTokens{.tokens = 0}.window(); }), "AccumulateTokens: tokens is 0");
}

BOOST_AUTO_TEST_SUITE_END()

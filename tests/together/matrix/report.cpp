// States how many combinations must run. At the end it prints how many ran, how many the rules
// refused, and why.
#include "matrix.hpp"

#include <cstdio>

namespace {

struct Report {
    Report() = default;
    Report(const Report&) = delete;
    Report& operator=(const Report&) = delete;
    ~Report() {
        const auto& all = unisono_matrix::counts();
        int refused = 0;
        for (const auto& [reason, count] : all.refused) refused += count;
        std::printf("policy matrix: %d combinations ran, on threads%s; %d were refused at compile time\n", all.ran,
                    test::under_thread_sanitizer ? "" : " and on processes", refused);
        for (const auto& [reason, count] : all.refused) std::printf("  %3d refused: %s\n", count, reason.c_str());
    }
};

} // namespace

BOOST_TEST_GLOBAL_FIXTURE(Report);

#ifdef UNISONO_MATRIX_WHOLE // otherwise a part of the tables is left out
// Runs after all others. These numbers change if a combination is lost, or if a new rule refuses
// it.
BOOST_AUTO_TEST_CASE(
    as_many_combinations_as_ever,
    *boost::unit_test::depends_on("compressed") * boost::unit_test::depends_on("compressions_that_are_refused") *
        boost::unit_test::depends_on("own_compression") * boost::unit_test::depends_on("on_a_grid") *
        boost::unit_test::depends_on("full_automatic") * boost::unit_test::depends_on("full_halving_doubling") *
        boost::unit_test::depends_on("full_parameter_server") * boost::unit_test::depends_on("full_sum_only") *
        boost::unit_test::depends_on("pairwise_1") * boost::unit_test::depends_on("pairwise_2") *
        boost::unit_test::depends_on("pairwise_3") *
        boost::unit_test::depends_on("owners_of_slices_have_no_place_in_updates_of_each_ranks_own") *
        boost::unit_test::depends_on("pairwise_4") * boost::unit_test::depends_on("streaming") *
        boost::unit_test::depends_on("own_update") * boost::unit_test::depends_on("own_policies") *
        boost::unit_test::depends_on("full_native") * boost::unit_test::depends_on("full_ring") *
        boost::unit_test::depends_on("full_tree") * boost::unit_test::depends_on("sums_between_hosts") *
        boost::unit_test::depends_on("on_a_narrow_grid") * boost::unit_test::depends_on("rates_that_follow_the_batch") *
        boost::unit_test::depends_on("weights_of_16_bits") * boost::unit_test::depends_on("losses_are_scaled") *
        boost::unit_test::depends_on("served") * boost::unit_test::depends_on("several_workers") *
        boost::unit_test::depends_on("split_models")) {
    int refused = 0;
    for (const auto& [reason, count] : unisono_matrix::counts().refused) refused += count;
    BOOST_TEST(unisono_matrix::counts().ran == 233);
    BOOST_TEST(refused == 189);
}
#endif

// Logs of hashes: their lines, and where two logs diverge.
#include <unisono/observe/hash_log.hpp>

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <limits>
#include <string>

namespace un = unisono;

BOOST_AUTO_TEST_SUITE(observe_hash_log)

BOOST_AUTO_TEST_CASE(a_line_holds_all_bits) {
    BOOST_TEST(un::hash_line(17, 0.75, {.parameters = 0x123456789abcdef, .optimizer = ~std::uint64_t{0}}) ==
               "17 loss 0x1.8p-1 parameters 0123456789abcdef optimizer ffffffffffffffff");
    const double infinite = std::numeric_limits<double>::infinity(), nan = std::nan("");
    BOOST_TEST(un::hash_line(1, -infinite, {1, 2}).find("1 loss -inf ") == 0u);
    // NaN of any sign.
    for (const double loss : {nan, -nan, std::copysign(nan, -1.0), infinite - infinite})
        BOOST_TEST(un::hash_line(1, loss, {1, 2}).find("1 loss nan ") == 0u);
}

BOOST_AUTO_TEST_CASE(the_first_difference_is_named) {
    const std::string one = un::hash_line(1, 0.5, {1, 2}) + "\n";
    const std::string two = un::hash_line(2, 0.25, {3, 4}) + "\n";
    const auto compare = [](const std::string& a, const std::string& b) { return un::compare_hash_logs(a, b); };
    BOOST_TEST(compare(one + two, one + two).equal);
    BOOST_TEST(compare(one + two, "# of another run\n\n" + one + two).compared == 2u);
    for (const char* none : {"", "# of a run that stopped before its first update\n\n"}) {
        const auto nothing = compare("", none);
        BOOST_TEST(!nothing.equal); // no update says so
        BOOST_TEST(nothing.empty);
        BOOST_TEST(nothing.what == "neither log has an update");
        BOOST_TEST(!compare(one, none).empty);
    }
    const auto parameters = compare(one + two, one + un::hash_line(2, 0.25, {5, 4}));
    BOOST_TEST(!parameters.equal);
    BOOST_TEST(parameters.compared == 1u);
    BOOST_TEST(parameters.what == "update 2 differs: parameters 0000000000000003 and 0000000000000005");
    const auto all = compare(one, un::hash_line(1, -0.5, {1, 9}));
    BOOST_TEST(all.what ==
               "update 1 differs: loss 0x1p-1 and -0x1p-1; optimizer 0000000000000002 and 0000000000000009");
    BOOST_TEST(compare(one, one + two).what == "the second log has an update 2, before which the other ends");
    BOOST_TEST(compare(one, two).what ==
               "update 1 in the first log and 2 in the second: the logs are of different updates");
}

BOOST_AUTO_TEST_CASE(an_element_hash_depends_on_place_and_bits) {
    BOOST_TEST(un::hash_of_element(0, 0) != un::hash_of_element(1, 0));
    BOOST_TEST(un::hash_of_element(0, 1) != un::hash_of_element(0, 0));
    // Exchanged elements, and -0 instead of 0, make other arrays.
    BOOST_TEST(un::hash_of_element(0, 5) + un::hash_of_element(1, 7) !=
               un::hash_of_element(0, 7) + un::hash_of_element(1, 5));
}

BOOST_AUTO_TEST_SUITE_END()

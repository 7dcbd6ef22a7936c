#include <unisono/core/text.hpp>
#include <unisono/observe/table.hpp>

#include <boost/test/unit_test.hpp>

#include <limits>

using namespace unisono;

BOOST_AUTO_TEST_SUITE(table)

BOOST_AUTO_TEST_CASE(columns_are_aligned) {
    Table plan({"bucket", ">bytes", "owners"});
    plan.row({"0", "4", "all"}).row({"1", "25.0 MiB", "0\u20133"});
    BOOST_TEST(plan.rows() == 2U);
    BOOST_TEST(plan.text(2) == "  bucket     bytes  owners\n"
                               "  ------  --------  ------\n"
                               "  0              4  all\n"
                               "  1       25.0 MiB  0\u20133\n");
}

BOOST_AUTO_TEST_CASE(rows_may_be_ragged_and_headings_absent) {
    Table plain;
    plain.row({"a"}).row({"long one", "b", "c"}).row({});
    BOOST_TEST(plain.rows() == 3U);
    BOOST_TEST(plain.text() == "a\nlong one  b  c\n\n");
    BOOST_TEST(Table().text().empty());
}

BOOST_AUTO_TEST_CASE(numbers_for_people) {
    BOOST_TEST(bytes_text(0) == "0 B");
    BOOST_TEST(bytes_text(1023) == "1023 B");
    BOOST_TEST(bytes_text(1024) == "1.0 KiB");
    BOOST_TEST(bytes_text((1U << 20) - 1) == "1.0 MiB");
    BOOST_TEST(bytes_text(std::size_t{25} << 20) == "25.0 MiB");
    BOOST_TEST(bytes_text(std::numeric_limits<std::size_t>::max()) == "16.0 EiB");
    BOOST_TEST(count_text(0) == "0");
    BOOST_TEST(count_text(999) == "999");
    BOOST_TEST(count_text(1000) == "1,000");
    BOOST_TEST(count_text(1234567) == "1,234,567");
    BOOST_TEST(fixed_text(1.25, 1) == "1.2");
    BOOST_TEST(fixed_text(-2.0, 3) == "-2.000");
    BOOST_TEST(fixed_text(std::numeric_limits<double>::max(), 30).size() == 340U);
}

BOOST_AUTO_TEST_SUITE_END()

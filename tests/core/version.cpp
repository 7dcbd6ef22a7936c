#include <unisono/core/version.hpp>

#include <boost/test/unit_test.hpp>

BOOST_AUTO_TEST_SUITE(version)

BOOST_AUTO_TEST_CASE(the_parts_are_numbers) {
    static_assert(UNISONO_VERSION_MAJOR >= 0 && UNISONO_VERSION_MINOR >= 0 && UNISONO_VERSION_PATCH >= 0);
    BOOST_TEST(UNISONO_VERSION_MAJOR * 10000 + UNISONO_VERSION_MINOR * 100 + UNISONO_VERSION_PATCH > 0);
}

BOOST_AUTO_TEST_SUITE_END()

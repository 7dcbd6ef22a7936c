#include <boost/test/unit_test.hpp>

#include <chrono>
#include <thread>

BOOST_AUTO_TEST_SUITE(deep)

BOOST_AUTO_TEST_CASE(ends) { BOOST_TEST(true); }

BOOST_AUTO_TEST_CASE(never_ends) {
    for (;;) std::this_thread::sleep_for(std::chrono::milliseconds(50));
}

BOOST_AUTO_TEST_SUITE_END()

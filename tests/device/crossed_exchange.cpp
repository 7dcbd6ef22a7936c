#include "crossed.hpp"

BOOST_AUTO_TEST_SUITE(device_crossed)

BOOST_AUTO_TEST_CASE(exchange_sums) { device_matrix::check_all<8, 9>(); }

BOOST_AUTO_TEST_SUITE_END()

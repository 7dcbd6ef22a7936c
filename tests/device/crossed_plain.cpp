#include "crossed.hpp"

BOOST_AUTO_TEST_SUITE(device_crossed)

BOOST_AUTO_TEST_CASE(plain_sums) { device_matrix::check_all<0, 1>(); }

BOOST_AUTO_TEST_SUITE_END()

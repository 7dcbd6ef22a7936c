#include "crossed.hpp"

BOOST_AUTO_TEST_SUITE(device_crossed)

BOOST_AUTO_TEST_CASE(reproducible_sums) { device_matrix::check_all<2, 3>(); }

BOOST_AUTO_TEST_SUITE_END()

#include "crossed.hpp"

BOOST_AUTO_TEST_SUITE(device_crossed)

BOOST_AUTO_TEST_CASE(cast_sums) { device_matrix::check_all<6, 7>(); }

BOOST_AUTO_TEST_SUITE_END()

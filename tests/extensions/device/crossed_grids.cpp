#include "crossed.hpp"

BOOST_AUTO_TEST_SUITE(device_crossed)

BOOST_AUTO_TEST_CASE(sums_on_grids) { device_matrix::check_all<2, 3, 4, 5>(); }

BOOST_AUTO_TEST_SUITE_END()

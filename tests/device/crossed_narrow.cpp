#include "crossed.hpp"

BOOST_AUTO_TEST_SUITE(device_crossed)

BOOST_AUTO_TEST_CASE(narrow_sums) { device_matrix::check_all<4, 5>(); }

BOOST_AUTO_TEST_SUITE_END()

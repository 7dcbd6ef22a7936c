#include "crossed.hpp"

BOOST_AUTO_TEST_SUITE(device_crossed)

BOOST_AUTO_TEST_CASE(sums_of_numbers) { device_matrix::check_all<0, 1, 6, 7, 8, 9>(); }

BOOST_AUTO_TEST_SUITE_END()

#include "pairwise.hpp"

BOOST_AUTO_TEST_CASE(pairwise_1) { unisono_matrix::check_rows<0>(std::make_index_sequence<7>{}); }

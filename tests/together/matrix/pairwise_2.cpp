#include "pairwise.hpp"

BOOST_AUTO_TEST_CASE(pairwise_2) { unisono_matrix::check_rows<7>(std::make_index_sequence<7>{}); }

#include "pairwise.hpp"

BOOST_AUTO_TEST_CASE(pairwise_4) { unisono_matrix::check_rows<22>(std::make_index_sequence<5>{}); }

#include "pairwise.hpp"

BOOST_AUTO_TEST_CASE(pairwise_3) { unisono_matrix::check_rows<14>(std::make_index_sequence<7>{}); }

static_assert(unisono_matrix::rows.size() == 21, "each row is checked by one of the three files");

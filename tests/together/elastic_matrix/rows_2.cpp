#include "elastic_matrix.hpp"

BOOST_AUTO_TEST_CASE(rows_2) { unisono_elastic_matrix::check_elastic_rows<7>(std::make_index_sequence<7>{}); }

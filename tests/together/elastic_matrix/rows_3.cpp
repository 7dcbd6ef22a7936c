#include "elastic_matrix.hpp"

BOOST_AUTO_TEST_CASE(rows_3) { unisono_elastic_matrix::check_elastic_rows<14>(std::make_index_sequence<7>{}); }

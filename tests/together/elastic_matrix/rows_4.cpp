#include "elastic_matrix.hpp"

BOOST_AUTO_TEST_CASE(rows_4) { unisono_elastic_matrix::check_elastic_rows<21>(std::make_index_sequence<6>{}); }

#include "matrix.hpp"

BOOST_AUTO_TEST_CASE(full_ring) {
    using namespace unisono_matrix;
    check_full(un::RingReducer{.chunk_bytes = 16});
}

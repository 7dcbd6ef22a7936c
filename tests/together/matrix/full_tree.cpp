#include "matrix.hpp"

BOOST_AUTO_TEST_CASE(full_tree) {
    using namespace unisono_matrix;
    check_full(un::TreeReducer{});
}

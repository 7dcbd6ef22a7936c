#include "matrix.hpp"

BOOST_AUTO_TEST_CASE(full_native) {
    using namespace unisono_matrix;
    check_full(un::NativeReducer{});
}

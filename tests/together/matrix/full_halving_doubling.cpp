#include "matrix.hpp"

BOOST_AUTO_TEST_CASE(full_halving_doubling) {
    using namespace unisono_matrix;
    check_full(un::HalvingDoublingReducer{});
}

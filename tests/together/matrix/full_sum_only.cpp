#include "matrix.hpp"

// A reducer of the tests that cannot sum to owners.
BOOST_AUTO_TEST_CASE(full_sum_only) {
    using namespace unisono_matrix;
    check_full(SumOnlyReducer{});
}

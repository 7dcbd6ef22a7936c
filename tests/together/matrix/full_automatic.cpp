#include "matrix.hpp"

#include <unisono/automatic.hpp>

BOOST_AUTO_TEST_CASE(full_automatic) {
    using namespace unisono_matrix;
    check_full(un::AutomaticReducer{});
}

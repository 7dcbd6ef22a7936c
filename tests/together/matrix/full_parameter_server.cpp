#include "matrix.hpp"

BOOST_AUTO_TEST_CASE(full_parameter_server) {
    using namespace unisono_matrix;
    check_full(un::ParameterServerReducer{.servers = 1});
    check_full(un::ParameterServerReducer{.servers = 2});
}

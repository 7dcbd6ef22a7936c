# The matrix is compiled once. MPI's ranks (tests/extensions/mpi) run it, too. In builds of few
# tests some rows stand for all: threads and memory meet in the same ways.
add_library(network_matrix OBJECT ${folder}/matrix/matrix.cpp)
target_link_libraries(network_matrix PRIVATE unisono_test_setup ${room_library})
target_compile_options(network_matrix PRIVATE -O0)
target_precompile_headers(network_matrix REUSE_FROM ${precompiled})
if(few)
    target_compile_definitions(network_matrix PRIVATE UNISONO_TEST_FEW)
endif()
target_link_libraries(${room_target} PRIVATE network_matrix)
# libfabric itself leaks, and is not instrumented.
if(TARGET unisono::libfabric AND NOT UNISONO_SANITIZED)
    target_link_libraries(${room_target} PRIVATE unisono::libfabric)
    target_compile_definitions(${room_target} PRIVATE UNISONO_TEST_LIBFABRIC)
endif()

# A stand-in for CUDA and NCCL, over memory of the host: see stand_in/stand_in.hpp. The real
# libraries are only linked (link/).
target_sources(${room_target} PRIVATE ${CMAKE_CURRENT_LIST_DIR}/stand_in/cuda.cpp ${CMAKE_CURRENT_LIST_DIR}/stand_in/nccl.cpp)
target_include_directories(${room_target} BEFORE PRIVATE ${CMAKE_CURRENT_LIST_DIR}/stand_in)

# Builds of few tests have worlds that begin, fail and end. The rest takes too long to compile.
if(few)
    leave_out("/(collectives|laws|training)[.]cpp$")
endif()
if(thread_sanitizer OR NOT UNISONO_TEST_ALL)
    leave_out("/elastic[.]cpp$")
endif()

add_test(NAME nccl/stand_ins COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/stand_in/check.py ${PROJECT_SOURCE_DIR})

# NCCL itself, if it is installed: compiled, linked and run as far as a machine without a GPU can.
if(NOT few)
    if(TARGET unisono::nccl)
        add_test(NAME nccl/link
                 COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/link/check.py ${CMAKE_CXX_COMPILER} "${UNISONO_NVCC}"
                         ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_BINARY_DIR} "${UNISONO_NCCL_INCLUDE};${UNISONO_CUDART_INCLUDE}"
                         "${UNISONO_NCCL_LIBRARY};${UNISONO_CUDART_LIBRARY}")
        set_tests_properties(nccl/link PROPERTIES TIMEOUT 900)
    else()
        skipped_test(nccl/link "no NCCL 2.19 or newer with the CUDA runtime")
    endif()
endif()
unite_sources("captured collectives faults laws prefetch training")
leave_to_sanitizers("/(captured|prefetch)[.]cpp$" BOTH)

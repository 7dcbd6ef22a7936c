# The library unisono::devices over the stand-in for CUDA: its sources, compiled by a host's
# compiler with Thrust's system of one thread. trained.cpp is a program (check.py).
leave_out("/trained[.]cpp$")
set(stand_in ${PROJECT_SOURCE_DIR}/tests/extensions/nccl/stand_in)
file(GLOB library_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/devices/*.cu)
set_source_files_properties(${library_sources} PROPERTIES LANGUAGE CXX)
add_library(devices_on_stand_in STATIC ${library_sources} ${stand_in}/cuda.cpp ${stand_in}/nccl.cpp)
target_include_directories(devices_on_stand_in BEFORE PUBLIC ${stand_in})
target_include_directories(devices_on_stand_in PUBLIC ${PROJECT_SOURCE_DIR}/tests)
target_compile_definitions(devices_on_stand_in
                           PRIVATE UNISONO_DEVICES_KERNELS="extensions/device_library/stand_in_kernels.hpp"
                           INTERFACE UNISONO_DEVICES)
# With AddressSanitizer clang takes three times as long to optimise them, and the tests run for
# milliseconds.
target_compile_options(devices_on_stand_in PRIVATE "SHELL:-x c++" $<IF:$<BOOL:${UNISONO_SANITIZED}>,-O0,-O1>)
target_link_libraries(devices_on_stand_in PRIVATE unisono::thrust unisono_warnings)
target_link_libraries(${room_target} PRIVATE devices_on_stand_in)

# trained.cpp for the library by this compiler and by clang, and header-only.
if(NOT few)
    set(trained ${CMAKE_CURRENT_LIST_DIR}/trained.cpp)
    add_executable(device_library_trained ${trained})
    target_link_libraries(device_library_trained PRIVATE devices_on_stand_in unisono::unisono unisono_warnings)
    add_executable(device_library_header_only ${trained} ${stand_in}/cuda.cpp ${stand_in}/nccl.cpp)
    target_include_directories(device_library_header_only BEFORE PRIVATE ${stand_in})
    target_include_directories(device_library_header_only PRIVATE ${PROJECT_SOURCE_DIR}/tests)
    target_link_libraries(device_library_header_only PRIVATE unisono::thrust unisono_warnings)
    foreach(target device_library_trained device_library_header_only)
        target_compile_options(${target} PRIVATE -O0)
    endforeach()
    set(clang)
    if(UNISONO_CLANG AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
        set(clang ${UNISONO_CLANG})
    endif()
    add_test(NAME device_library/trained
             COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/check.py ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_BINARY_DIR}
                     $<TARGET_FILE:device_library_trained> $<TARGET_FILE:device_library_header_only>
                     $<TARGET_FILE:devices_on_stand_in> "${UNISONO_NVCC}" ${clang})
    set_tests_properties(device_library/trained PROPERTIES TIMEOUT 900 PROCESSORS 2)

    # examples/existing_code/cuda_c. To compile its program before, nvcc needs an MPI's header.
    set(mpi_include)
    foreach(implementation openmpi mpich)
        unisono_find_mpi(${implementation})
        if(TARGET mpi_${implementation})
            get_target_property(mpi_include mpi_${implementation} INTERFACE_INCLUDE_DIRECTORIES)
            list(GET mpi_include 0 mpi_include)
            break()
        endif()
    endforeach()
    set(nccl_include)
    if(TARGET unisono::nccl)
        set(nccl_include "${UNISONO_NCCL_INCLUDE};${UNISONO_CUDART_INCLUDE}")
    endif()
    add_test(NAME device_library/cuda_c
             COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/cuda_c/check.py ${CMAKE_CXX_COMPILER} "${UNISONO_NVCC}"
                     ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_BINARY_DIR} $<TARGET_FILE:devices_on_stand_in> "${nccl_include}" ${mpi_include})
    set_tests_properties(device_library/cuda_c PROPERTIES TIMEOUT 900)
endif()

# Over the stand-in for CUDA and NCCL (tests/extensions/nccl/stand_in).
add_library(device_stand_in OBJECT ${PROJECT_SOURCE_DIR}/tests/extensions/nccl/stand_in/cuda.cpp
                                   ${PROJECT_SOURCE_DIR}/tests/extensions/nccl/stand_in/nccl.cpp)
target_include_directories(device_stand_in BEFORE PRIVATE ${PROJECT_SOURCE_DIR}/tests/extensions/nccl/stand_in)
target_link_libraries(device_stand_in PRIVATE unisono_test_setup ${room_library})
target_compile_options(device_stand_in PRIVATE -O0)
target_link_libraries(${room_target} PRIVATE device_stand_in)
target_include_directories(${room_target} BEFORE PRIVATE ${PROJECT_SOURCE_DIR}/tests/extensions/nccl/stand_in)

# Builds of few tests have one translation unit: single updates. The rest takes too long to compile.
if(few)
    leave_out("/(bus|checkpoints|crossed_.*|local|master_weights|refused|training|units)[.]cpp$")
endif()

# examples/digits_on_gpu with Thrust's kernels on the stand-in: accuracy and bits are those of the
# example on the host.
if(TARGET unisono::thrust AND UNISONO_BUILD_EXAMPLES AND NOT few)
    set_property(GLOBAL APPEND PROPERTY UNISONO_NEEDED_EXAMPLES digits)
    set(digits_source ${PROJECT_SOURCE_DIR}/examples/digits_on_gpu/digits_on_gpu.cu)
    set_source_files_properties(${digits_source} PROPERTIES LANGUAGE CXX)
    add_executable(digits_on_stand_in ${digits_source} # header-only, so with a stand-in of its own
                                      ${PROJECT_SOURCE_DIR}/tests/extensions/nccl/stand_in/cuda.cpp
                                      ${PROJECT_SOURCE_DIR}/tests/extensions/nccl/stand_in/nccl.cpp)
    target_include_directories(digits_on_stand_in BEFORE PRIVATE ${PROJECT_SOURCE_DIR}/tests/extensions/nccl/stand_in)
    target_include_directories(digits_on_stand_in PRIVATE ${PROJECT_SOURCE_DIR}/tests)
    target_compile_definitions(digits_on_stand_in PRIVATE DIGITS_KERNELS="extensions/device/digits_kernels.hpp")
    target_compile_options(digits_on_stand_in PRIVATE "SHELL:-x c++" -O0)
    target_link_libraries(digits_on_stand_in PRIVATE unisono::thrust unisono_warnings)
    add_test(NAME device_digits
             COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/digits.py $<TARGET_FILE:digits_on_stand_in>
                     $<TARGET_FILE:digits> ${PROJECT_SOURCE_DIR}/examples/digits/data/digits.csv)
    set_tests_properties(device_digits PROPERTIES TIMEOUT 600 PROCESSORS 2)
endif()
unite_sources("crossed_grids crossed_numbers training" "checkpoints refused" "local master_weights")
leave_to_sanitizers("/step[.]cpp$")

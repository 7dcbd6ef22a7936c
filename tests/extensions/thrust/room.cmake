# The host systems of Thrust that this machine has, in one program.
target_link_libraries(${room_target} PRIVATE unisono::thrust)
set_target_properties(${room_target} PROPERTIES DISABLE_PRECOMPILE_HEADERS ON) # made without OpenMP
find_package(OpenMP QUIET COMPONENTS CXX)
if(OpenMP_CXX_FOUND)
    target_link_libraries(${room_target} PRIVATE OpenMP::OpenMP_CXX)
    target_compile_definitions(${room_target} PRIVATE UNISONO_TEST_OMP)
endif()
find_package(TBB QUIET)
if(TBB_FOUND)
    target_link_libraries(${room_target} PRIVATE TBB::tbb)
    target_compile_definitions(${room_target} PRIVATE UNISONO_TEST_TBB)
endif()

# If nvcc is installed: compiles for current GPUs, and checks that no product is contracted where
# bits are promised. Nothing is run.
if(UNISONO_NVCC AND NOT UNISONO_SANITIZED)
    add_test(NAME thrust/nvcc COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/nvcc/check.py ${UNISONO_NVCC}
                                      ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_BINARY_DIR})
    set_tests_properties(thrust/nvcc PROPERTIES TIMEOUT 900 SKIP_RETURN_CODE 77)
elseif(NOT UNISONO_SANITIZED)
    skipped_test(thrust/nvcc "no nvcc")
endif()

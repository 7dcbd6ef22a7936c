# Hosts are network namespaces that the tests make, which requires root and iproute2. If the machine
# does not support them, all cases are skipped.
room_program(host_rank helper/rank.cpp)
target_include_directories(host_rank PRIVATE ${PROJECT_SOURCE_DIR}/tests)
target_compile_definitions(host_rank PRIVATE UNISONO_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/support/data")
if(TARGET unisono::libfabric AND UNISONO_TEST_ALL AND NOT CMAKE_CXX_FLAGS MATCHES "-fsanitize")
    foreach(each host_rank ${room_target})
        target_compile_definitions(${each} PRIVATE UNISONO_TEST_LIBFABRIC)
    endforeach()
    target_link_libraries(host_rank PRIVATE unisono::libfabric)
endif()
if(UNISONO_BUILD_EXAMPLES AND UNISONO_TEST_ALL) # docs/parallel.md's
    set_property(GLOBAL APPEND PROPERTY UNISONO_NEEDED_EXAMPLES parallel_digits)
    add_dependencies(${room_target} parallel_digits)
    target_compile_definitions(${room_target} PRIVATE UNISONO_PARALLEL_DIGITS="$<TARGET_FILE:parallel_digits>")
endif()
room_program(elastic_rank helper/elastic_rank.cpp)
target_compile_definitions(${room_target} PRIVATE UNISONO_HOST_RANK="$<TARGET_FILE:host_rank>"
                                                  UNISONO_ELASTIC_RANK="$<TARGET_FILE:elastic_rank>")
set_target_properties(${room_target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
# For campaign.py, which runs on request: cmake --build build/dev --target campaign_rank
add_executable(campaign_rank EXCLUDE_FROM_ALL ${folder}/helper/campaign_rank.cpp)
target_link_libraries(campaign_rank PRIVATE ${room_library} unisono_warnings)

# Real processes, strangers to one another: a rank for the tests, and the launcher.
add_executable(world_rank ${folder}/helper/rank.cpp)
target_link_libraries(world_rank PRIVATE unisono::unisono unisono_warnings)
add_executable(across_rank ${folder}/helper/across.cpp)
target_link_libraries(across_rank PRIVATE unisono::unisono unisono_warnings)
if(TARGET unisono::libfabric AND NOT UNISONO_SANITIZED)
    foreach(each across_rank ${room_target})
        target_compile_definitions(${each} PRIVATE UNISONO_TEST_LIBFABRIC)
    endforeach()
    target_link_libraries(across_rank PRIVATE unisono::libfabric)
endif()
if(NOT UNISONO_SANITIZED)
    target_compile_options(across_rank PRIVATE -O0)
endif()
add_dependencies(${room_target} world_rank across_rank unisono-run)
target_compile_definitions(${room_target} PRIVATE UNISONO_WORLD_RANK="$<TARGET_FILE:world_rank>"
                                                  UNISONO_ACROSS_RANK="$<TARGET_FILE:across_rank>"
                                                  UNISONO_RUN="$<TARGET_FILE:unisono-run>")

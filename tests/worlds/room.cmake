# Real processes, strangers to one another: a rank for the tests, and the launcher.
add_executable(world_rank ${folder}/helper/rank.cpp)
target_link_libraries(world_rank PRIVATE unisono::unisono unisono_warnings)
add_dependencies(${room_target} world_rank unisono-run)
target_compile_definitions(${room_target} PRIVATE UNISONO_WORLD_RANK="$<TARGET_FILE:world_rank>"
                                                  UNISONO_RUN="$<TARGET_FILE:unisono-run>")

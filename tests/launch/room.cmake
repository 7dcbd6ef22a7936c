# Real processes: a rank for the tests, and the launcher itself.
add_executable(launch_rank ${folder}/helper/rank.cpp)
target_link_libraries(launch_rank PRIVATE unisono::unisono unisono_warnings)
add_dependencies(${room_target} launch_rank unisono-run)
target_compile_definitions(${room_target} PRIVATE UNISONO_LAUNCH_RANK="$<TARGET_FILE:launch_rank>"
                                                  UNISONO_RUN="$<TARGET_FILE:unisono-run>")
unite_sources("control_plane hub identity launcher strangers meeting_store sha256")

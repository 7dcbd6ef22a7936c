# Programs: a rank for the tests, and the launcher itself.
room_program(launch_rank helper/rank.cpp)
add_dependencies(${room_target} unisono-run)
target_compile_definitions(${room_target} PRIVATE UNISONO_LAUNCH_RANK="$<TARGET_FILE:launch_rank>"
                                                  UNISONO_RUN="$<TARGET_FILE:unisono-run>")
target_link_libraries(${room_target} PRIVATE unisono_run_parts)
unite_sources("control_plane hub identity launcher strangers rendezvous_store sha256 error_text")
leave_to_sanitizers("/(control_plane|doors|error_text|identity|launcher|rendezvous_store|sha256|strangers|waiting)[.]cpp$")

unite_sources("boards capabilities context group_state leaving progress_thread" "faults wait_any")
room_program(group_limited helper/limited.cpp)
target_compile_definitions(${room_target} PRIVATE UNISONO_GROUP_LIMITED="$<TARGET_FILE:group_limited>")
target_link_libraries(${room_target} PRIVATE unisono_allocation_counter)

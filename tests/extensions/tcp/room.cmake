target_link_libraries(${room_target} PRIVATE unisono_allocation_counter)
# One translation unit parses the library once: 41 s of processor time instead of a minute.
leave_out_unless_all("/(campaign|training)[.]cpp$")
set_target_properties(${room_target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
if(thread_sanitizer) # it would not see what processes do
    leave_out("/processes[.]cpp$")
endif()

leave_out_unless_all("/campaign[.]cpp$")
# One translation unit parses the library once.
set_target_properties(${room_target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
if(thread_sanitizer) # it would not see what processes do
    leave_out("/processes[.]cpp$")
endif()

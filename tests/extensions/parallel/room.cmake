target_link_libraries(${room_target} PRIVATE unisono_allocation_counter)
# With ThreadSanitizer, checkpoints of whole models (tests/extensions/checkpoint) stand for those of
# parts.
if(thread_sanitizer)
    leave_out("/checkpoints[.]cpp$")
endif()
leave_out_unless_all("/(checkpoints|placement|simulated|splits|stream)[.]cpp$")
unite_sources("checkpoints simulated" "failures model placement" "mesh pipelines splits")

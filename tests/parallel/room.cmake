target_link_libraries(${room_target} PRIVATE unisono_allocation_counter)
# Under a sanitizer checkpoints of whole models (tests/checkpoint) stand for those of parts.
if(UNISONO_SANITIZED)
    leave_out("/checkpoints[.]cpp$")
endif()
unite_sources("checkpoints simulated" "failures model placement" "mesh pipelines splits")

target_link_libraries(${room_target} PRIVATE unisono_allocation_counter)
# Under a sanitizer checkpoints of whole models (tests/checkpoint) stand for those of parts.
if(UNISONO_SANITIZED)
    get_target_property(parallel_sources ${room_target} SOURCES)
    list(FILTER parallel_sources EXCLUDE REGEX "/checkpoints[.]cpp$")
    set_target_properties(${room_target} PROPERTIES SOURCES "${parallel_sources}")
endif()
unite_sources("checkpoints simulated" "failures model placement" "mesh pipelines splits")

target_link_libraries(${room_target} PRIVATE unisono_allocation_counter)
if(UNISONO_SANITIZED)
    target_compile_definitions(${room_target} PRIVATE UNISONO_TEST_FEW)
endif()

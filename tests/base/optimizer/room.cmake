target_link_libraries(${room_target} PRIVATE unisono_allocation_counter)
unite_sources("laws learning_rate reference")

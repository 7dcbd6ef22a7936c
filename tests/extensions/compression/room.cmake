target_link_libraries(${room_target} PRIVATE unisono_allocation_counter)
leave_out_unless_all("/training[.]cpp$")
unite_sources("sharded wires")

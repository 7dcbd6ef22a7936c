target_link_libraries(${room_target} PRIVATE unisono_allocation_counter)
# Modes, reductions and models meet in the policy matrix, too.
leave_out_unless_all("/(batch_size|data_parallel|hogwild|searches|served_updates|sharding)[.]cpp$")
unite_sources("bad_input reproducible" "local_updates mixed_precision" "hashes streaming" "gossip trace" "clipping searches" "behaviour reference")

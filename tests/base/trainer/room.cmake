target_link_libraries(${room_target} PRIVATE unisono_allocation_counter)
# The policy matrix also tests modes, reductions and models.
leave_out_unless_all("/(batch_size|data_parallel|overflow|searches|served_updates|sharding)[.]cpp$")
unite_sources("bad_input reproducible" "local_updates mixed_precision" "hashes streaming" "gossip trace" "clipping searches" "behaviour reference")

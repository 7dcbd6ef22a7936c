target_link_libraries(${room_target} PRIVATE unisono_allocation_counter)
unite_sources("bad_input reproducible" "local_updates mixed_precision" "hashes streaming" "gossip trace" "clipping searches" "behaviour reference")

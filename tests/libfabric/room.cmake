target_link_libraries(${room_target} PRIVATE unisono::libfabric)
unite_sources("collectives faults laws training")

target_link_libraries(${room_target} PRIVATE unisono::libfabric)

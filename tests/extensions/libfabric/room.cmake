target_link_libraries(${room_target} PRIVATE unisono::libfabric)

# device.cpp runs over the stand-in for CUDA, whose other half is NCCL's.
target_sources(${room_target} PRIVATE ${PROJECT_SOURCE_DIR}/tests/extensions/nccl/stand_in/cuda.cpp
                                      ${PROJECT_SOURCE_DIR}/tests/extensions/nccl/stand_in/nccl.cpp)
target_include_directories(${room_target} BEFORE PRIVATE ${PROJECT_SOURCE_DIR}/tests/extensions/nccl/stand_in)
leave_out_unless_all("/(campaign|collectives|device|elastic|training)[.]cpp$")
unite_sources("collectives faults laws training")

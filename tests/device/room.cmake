# Over the stand-in for CUDA and NCCL (tests/nccl/stand_in).
target_sources(${room_target} PRIVATE ${PROJECT_SOURCE_DIR}/tests/nccl/stand_in/cuda.cpp
                                      ${PROJECT_SOURCE_DIR}/tests/nccl/stand_in/nccl.cpp)
target_include_directories(${room_target} BEFORE PRIVATE ${PROJECT_SOURCE_DIR}/tests/nccl/stand_in)

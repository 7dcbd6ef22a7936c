# Over the stand-in for CUDA (tests/extensions/nccl/stand_in), whose other half is NCCL's.
target_sources(${room_target} PRIVATE ${PROJECT_SOURCE_DIR}/tests/extensions/nccl/stand_in/cuda.cpp
                                      ${PROJECT_SOURCE_DIR}/tests/extensions/nccl/stand_in/nccl.cpp)
target_include_directories(${room_target} BEFORE PRIVATE ${PROJECT_SOURCE_DIR}/tests/extensions/nccl/stand_in)

# Builds of few tests have one translation unit. The rest takes too long to compile.
if(few)
    leave_out("/(networks|training)[.]cpp$")
endif()
unite_sources("networks staged training")

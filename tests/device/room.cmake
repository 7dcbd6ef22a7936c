# Over the stand-in for CUDA and NCCL (tests/nccl/stand_in).
target_sources(${room_target} PRIVATE ${PROJECT_SOURCE_DIR}/tests/nccl/stand_in/cuda.cpp
                                      ${PROJECT_SOURCE_DIR}/tests/nccl/stand_in/nccl.cpp)
target_include_directories(${room_target} BEFORE PRIVATE ${PROJECT_SOURCE_DIR}/tests/nccl/stand_in)

# Under a sanitizer one translation unit: single updates. The rest compiles for too long.
if(UNISONO_SANITIZED)
    get_target_property(device_sources ${room_target} SOURCES)
    list(FILTER device_sources EXCLUDE REGEX "/(checkpoints|matrix|training)[.]cpp$")
    set_target_properties(${room_target} PROPERTIES SOURCES "${device_sources}")
endif()

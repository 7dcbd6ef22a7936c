# Over the stand-in for CUDA (tests/extensions/nccl/stand_in), whose other half is NCCL's.
target_sources(${room_target} PRIVATE ${PROJECT_SOURCE_DIR}/tests/extensions/nccl/stand_in/cuda.cpp
                                      ${PROJECT_SOURCE_DIR}/tests/extensions/nccl/stand_in/nccl.cpp)
target_include_directories(${room_target} BEFORE PRIVATE ${PROJECT_SOURCE_DIR}/tests/extensions/nccl/stand_in)

# Builds of few tests have two translation units. The rest takes too long to compile.
if(few)
    leave_out("/(networks|training)[.]cpp$")
endif()
# It forks processes: see extensions/elastic/room.cmake.
if(thread_sanitizer OR NOT UNISONO_TEST_ALL)
    leave_out("/elastic[.]cpp$")
else()
    set(room_apart cuda_elastic)
endif()
unite_sources("networks staged training")
leave_to_sanitizers("/staged[.]cpp$")

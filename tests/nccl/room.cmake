# A stand-in for CUDA and NCCL, over memory of the host: see stand_in/stand_in.hpp. The real ones are only linked (link/).
target_sources(${room_target} PRIVATE ${CMAKE_CURRENT_LIST_DIR}/stand_in/cuda.cpp ${CMAKE_CURRENT_LIST_DIR}/stand_in/nccl.cpp)
target_include_directories(${room_target} BEFORE PRIVATE ${CMAKE_CURRENT_LIST_DIR}/stand_in)

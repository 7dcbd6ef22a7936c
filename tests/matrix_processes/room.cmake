# Many instantiations, little to compute: the kernels are optimised whatever the flags are.
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND NOT UNISONO_SANITIZED)
    target_compile_options(${room_target} PRIVATE -O0)
    set_target_properties(${room_target} PROPERTIES DISABLE_PRECOMPILE_HEADERS ON) # it was made with other flags
endif()

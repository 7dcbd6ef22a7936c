# What only this repository's own tests, examples and benchmarks need.
find_program(UNISONO_CCACHE ccache)
if(UNISONO_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
    # The sloppiness lets ccache serve translation units that use a precompiled header.
    set(CMAKE_CXX_COMPILER_LAUNCHER
        ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
        ${UNISONO_CCACHE})
endif()

add_library(unisono_warnings INTERFACE)
target_compile_options(unisono_warnings INTERFACE -Wall -Wextra -Wpedantic -Wconversion -Wshadow)

set(UNISONO_SANITIZED OFF)
if(CMAKE_CXX_FLAGS MATCHES "-fsanitize=")
    set(UNISONO_SANITIZED ON)
endif()

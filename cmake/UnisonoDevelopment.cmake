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

# g++ looks for garbage whenever its memory has doubled from 128 MiB on: a sixth of its time, for little that it finds.
add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-heapsize=1500000>)

set(UNISONO_SANITIZED OFF)
if(CMAKE_CXX_FLAGS MATCHES "-fsanitize=")
    set(UNISONO_SANITIZED ON)
    # The checks that a sanitizer adds hide from g++'s optimiser what it knows of sizes: it then warns of copies that cannot happen.
    # Builds without a sanitizer keep these warnings.
    add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-array-bounds>
                        $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-stringop-overflow>)
endif()

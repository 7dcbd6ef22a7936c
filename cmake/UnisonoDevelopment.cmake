# Settings for this repository's own tests, examples and benchmarks.
find_program(UNISONO_CCACHE ccache)
if(UNISONO_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
    # With this sloppiness ccache serves translation units that use a precompiled header.
    set(CMAKE_CXX_COMPILER_LAUNCHER
        ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
        ${UNISONO_CCACHE})
endif()

add_library(unisono_warnings INTERFACE)
target_compile_options(unisono_warnings INTERFACE -Wall -Wextra -Wpedantic -Wconversion -Wshadow)

# By default g++ collects garbage whenever its memory has doubled, from 128 MiB on. This takes a
# sixth of its time and frees little.
add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-heapsize=1500000>)

set(UNISONO_SANITIZED OFF)
if(CMAKE_CXX_FLAGS MATCHES "-fsanitize=")
    set(UNISONO_SANITIZED ON)
    # A sanitizer's checks hide sizes from g++'s optimiser, which then warns of copies that cannot
    # happen. Builds without a sanitizer keep these warnings.
    add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-array-bounds>
                        $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-stringop-overflow>)
endif()

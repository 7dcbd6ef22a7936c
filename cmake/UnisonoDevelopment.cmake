# Settings for this repository's own tests, examples and benchmarks.
find_program(UNISONO_CCACHE ccache)
if(UNISONO_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
    # With this sloppiness ccache serves sources that use a precompiled header. The list of
    # headers is the compiler's own: a miss needs no run of the preprocessor.
    set(CMAKE_CXX_COMPILER_LAUNCHER
        ${CMAKE_COMMAND} -E env CCACHE_DEPEND=1 CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
        ${UNISONO_CCACHE})
endif()

add_library(unisono_warnings INTERFACE)
target_compile_options(unisono_warnings INTERFACE -Wall -Wextra -Wpedantic -Wconversion -Wshadow)

# By default g++ collects garbage whenever its memory has doubled, from 128 MiB on. This takes a
# sixth of its time and frees little.
add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-heapsize=1500000>)

# Builds without optimisation link often, and lld takes a quarter of the time of GNU ld.
find_program(UNISONO_LLD ld.lld)
if(UNISONO_LLD AND CMAKE_BUILD_TYPE STREQUAL Debug)
    add_link_options(-fuse-ld=lld)
endif()

# Every test says by status 77 that it is skipped, and prints a line "skipped: why" that
# tests/run.sh lists. A pattern of output would hide the failures of a program that skips one case.
# skipped_test(name why): what is left out of this build.
function(skipped_test name why)
    add_test(NAME ${name} COMMAND sh -c [[echo "skipped: $0"; exit 77]] ${why})
    set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77)
endfunction()

# output_test(name [FAILS] PATTERN regex [TIMEOUT s] [PROCESSORS n] COMMAND program arguments...): a
# test of what a program prints, and of its status. The regular expression is Python's; `.` matches
# newlines, too.
function(output_test name)
    cmake_parse_arguments(PARSE_ARGV 1 given "FAILS" "PATTERN;TIMEOUT;PROCESSORS" "COMMAND")
    find_package(Python3 3.9 COMPONENTS Interpreter REQUIRED)
    set(expected passes)
    if(given_FAILS)
        set(expected fails)
    endif()
    list(POP_FRONT given_COMMAND program)
    if(TARGET ${program})
        set(program $<TARGET_FILE:${program}>)
    endif()
    add_test(NAME ${name} COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tests/support/expect_output.py ${expected}
                                  "${given_PATTERN}" ${program} ${given_COMMAND})
    if(NOT given_TIMEOUT)
        set(given_TIMEOUT 60)
    endif()
    set_tests_properties(${name} PROPERTIES TIMEOUT ${given_TIMEOUT})
    if(given_PROCESSORS)
        set_tests_properties(${name} PROPERTIES PROCESSORS ${given_PROCESSORS})
    endif()
endfunction()

set(UNISONO_SANITIZED OFF)
if(CMAKE_CXX_FLAGS MATCHES "-fsanitize=")
    set(UNISONO_SANITIZED ON)
    # A sanitizer's checks hide sizes from g++'s optimiser, which then warns of copies that cannot
    # happen. Builds without a sanitizer keep these warnings.
    add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-array-bounds>
                        $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-stringop-overflow>)
endif()

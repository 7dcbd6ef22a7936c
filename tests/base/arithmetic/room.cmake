# Contraction: with each available compiler, the probe must find no FMA, and without the guards it
# must find some. With these flags compilers do contract, whatever the flags of this build.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64" AND NOT UNISONO_SANITIZED)
    foreach(compiler IN LISTS snippet_compilers)
        get_filename_component(compiler_name ${compiler} NAME)
        foreach(variant guarded unguarded)
            set(probe contraction_${variant}_${compiler_name})
            add_custom_command(
                OUTPUT ${probe}
                COMMAND ${compiler} -std=c++20 -O3 -mfma -mavx2 -pthread
                        $<$<STREQUAL:${variant},unguarded>:-DUNISONO_TEST_WITHOUT_GUARD>
                        -I${PROJECT_SOURCE_DIR}/include -I${PROJECT_SOURCE_DIR}/tests -MD -MF ${probe}.d -MT ${probe}
                        -o ${probe} ${CMAKE_CURRENT_LIST_DIR}/contraction/probe.cpp
                DEPENDS ${CMAKE_CURRENT_LIST_DIR}/contraction/probe.cpp
                DEPFILE ${probe}.d
                COMMENT "Compiling ${probe}"
                COMMAND_EXPAND_LISTS VERBATIM)
            add_custom_target(${probe}_probe ALL DEPENDS ${probe})
            add_test(NAME arithmetic/${probe} COMMAND ${CMAKE_CURRENT_BINARY_DIR}/${probe})
            set_tests_properties(arithmetic/${probe} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 60)
        endforeach()
    endforeach()
    if(NOT UNISONO_CLANG AND NOT CMAKE_CXX_COMPILER_ID MATCHES Clang)
        skipped_test(arithmetic/contraction_clang++ "no clang++")
    endif()
endif()

# Sums on a grid have the same bits with -ffast-math or parts of it, on each compiler, with and
# without FMA instructions.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64" AND NOT few)
    set(fast_math_flags_plain -O2)
    set(fast_math_flags_fast -O2 -ffast-math -DUNISONO_TEST_FAST_MATH)
    set(fast_math_flags_faster -O3 -ffast-math -mavx2 -mfma -DUNISONO_TEST_FAST_MATH)
    set(fast_math_flags_parts -Ofast -fno-finite-math-only -mavx2 -mfma)
    foreach(compiler IN LISTS snippet_compilers)
        get_filename_component(compiler_name ${compiler} NAME)
        foreach(variant plain fast faster parts)
            set(probe fast_math_${variant}_${compiler_name})
            add_custom_command(
                OUTPUT ${probe}
                COMMAND ${compiler} -std=c++20 ${fast_math_flags_${variant}} -I${PROJECT_SOURCE_DIR}/include -MD -MF
                        ${probe}.d -MT ${probe} -o ${probe} ${CMAKE_CURRENT_LIST_DIR}/fast_math/probe.cpp
                DEPENDS ${CMAKE_CURRENT_LIST_DIR}/fast_math/probe.cpp
                DEPFILE ${probe}.d
                COMMENT "Compiling ${probe}"
                COMMAND_EXPAND_LISTS VERBATIM)
            add_custom_target(${probe}_probe ALL DEPENDS ${probe})
            add_test(NAME arithmetic/${probe} COMMAND ${CMAKE_CURRENT_BINARY_DIR}/${probe})
            set_tests_properties(arithmetic/${probe} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 60)
        endforeach()
    endforeach()
endif()

# Compiler options: refused by name, or (with --all) without effect on any bit.
if(NOT UNISONO_SANITIZED)
    set(options_test ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/options/table.py --include
                     ${PROJECT_SOURCE_DIR}/include ${snippet_compilers})
    if(NOT few)
        list(APPEND options_test --all)
    endif()
    add_test(NAME arithmetic/compiler_options COMMAND ${options_test})
    set_tests_properties(arithmetic/compiler_options PROPERTIES TIMEOUT 3600 COST 300)
endif()

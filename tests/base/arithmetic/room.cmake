# Contraction: with each available compiler, the probe must find no FMA, and without the guards it
# must find some. With these flags compilers do contract, whatever the flags of this build.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64" AND NOT UNISONO_SANITIZED)
    foreach(compiler IN LISTS snippet_compilers)
        get_filename_component(compiler_name ${compiler} NAME)
        room_probe(contraction_guarded_${compiler_name} ${compiler} contraction/probe.cpp -O3 -mfma -mavx2)
        room_probe(contraction_unguarded_${compiler_name} ${compiler} contraction/probe.cpp -O3 -mfma -mavx2
                   -DUNISONO_TEST_WITHOUT_GUARD)
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
            room_probe(fast_math_${variant}_${compiler_name} ${compiler} fast_math/probe.cpp ${fast_math_flags_${variant}})
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

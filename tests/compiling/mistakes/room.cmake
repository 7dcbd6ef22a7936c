target_link_libraries(${room_target} PRIVATE unisono_run_parts)
# Mistakes that the compiler finds. compile_fail/check.py describes the format.
if(NOT UNISONO_SANITIZED)
    set(check ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tests/compiling/compile_fail/check.py --include ${PROJECT_SOURCE_DIR}/include
                                         --include ${PROJECT_SOURCE_DIR}/tests/compiling/compile_fail)
    foreach(compiler IN LISTS snippet_compilers)
        list(APPEND check --compiler ${compiler})
    endforeach()
    add_test(NAME mistakes/compiled COMMAND ${check} ${folder}/compiled/programs.cpp)
    set_tests_properties(mistakes/compiled PROPERTIES TIMEOUT 600)
endif()

unite_sources("all_reduce short" "others reproducible_sum campaign")

# A compiler may remove stores whose use it does not see, at some levels of optimisation and in some
# programs. So each compiler compiles a header-only program with one call.
if(NOT few)
    foreach(compiler IN LISTS snippet_compilers)
        get_filename_component(compiler_name ${compiler} NAME)
        foreach(level 1 2)
            set(probe one_call_O${level}_${compiler_name})
            add_custom_command(
                OUTPUT ${probe}
                COMMAND ${compiler} -std=c++20 -O${level} -pthread -I${PROJECT_SOURCE_DIR}/include -MD -MF ${probe}.d -MT
                        ${probe} -o ${probe} ${folder}/one_call/probe.cpp
                DEPENDS ${folder}/one_call/probe.cpp
                DEPFILE ${probe}.d
                COMMENT "Compiling ${probe}"
                COMMAND_EXPAND_LISTS VERBATIM)
            add_custom_target(${probe}_probe ALL DEPENDS ${probe})
            add_test(NAME collective/${probe} COMMAND ${CMAKE_CURRENT_BINARY_DIR}/${probe})
            set_tests_properties(collective/${probe} PROPERTIES TIMEOUT 60)
        endforeach()
    endforeach()
endif()
leave_to_sanitizers("/(all_reduce|others|reproducible_sum|short)[.]cpp$" BOTH)

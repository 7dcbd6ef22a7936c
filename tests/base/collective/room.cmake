unite_sources("all_reduce short" "others reproducible_sum campaign")

# A compiler may remove stores whose use it does not see, at some levels of optimisation and in some
# programs. So each compiler compiles a header-only program with one call.
if(NOT few)
    foreach(compiler IN LISTS snippet_compilers)
        get_filename_component(compiler_name ${compiler} NAME)
        foreach(level 1 2)
            room_probe(one_call_O${level}_${compiler_name} ${compiler} one_call/probe.cpp -O${level})
        endforeach()
    endforeach()
endif()
leave_to_sanitizers("/(all_reduce|others|reproducible_sum|short)[.]cpp$" BOTH)

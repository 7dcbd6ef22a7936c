# Programs: ranks for the tests. Processes that do not share a parent, and the launcher.
room_program(world_rank helper/rank.cpp)
room_program(across_rank helper/across.cpp)
if(TARGET unisono::libfabric AND UNISONO_TEST_ALL AND NOT UNISONO_SANITIZED)
    foreach(each across_rank ${room_target})
        target_compile_definitions(${each} PRIVATE UNISONO_TEST_LIBFABRIC)
    endforeach()
    target_link_libraries(across_rank PRIVATE unisono::libfabric)
endif()
add_dependencies(${room_target} unisono-run)
target_compile_definitions(${room_target} PRIVATE UNISONO_WORLD_RANK="$<TARGET_FILE:world_rank>"
                                                  UNISONO_ACROSS_RANK="$<TARGET_FILE:across_rank>"
                                                  UNISONO_RUN="$<TARGET_FILE:unisono-run>")
room_program(faulty_rank helper/faulty.cpp)
target_compile_definitions(${room_target} PRIVATE UNISONO_FAULTY_RANK="$<TARGET_FILE:faulty_rank>")
# Sanitizers are slow, and these tests measure time.
if(NOT UNISONO_SANITIZED)
    add_test(NAME outside COMMAND ${Python3_EXECUTABLE} ${folder}/outside.py --rank $<TARGET_FILE:faulty_rank>
                                  --run $<TARGET_FILE:unisono-run> --parallel 4 --deadline 1000 --slack 4000)
    set_tests_properties(outside PROPERTIES TIMEOUT 300)
endif()

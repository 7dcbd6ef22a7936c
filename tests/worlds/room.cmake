# Real processes, strangers to one another: a rank for the tests, and the launcher.
add_executable(world_rank ${folder}/helper/rank.cpp)
target_link_libraries(world_rank PRIVATE unisono::unisono unisono_warnings)
add_executable(across_rank ${folder}/helper/across.cpp)
target_link_libraries(across_rank PRIVATE unisono::unisono unisono_warnings)
if(TARGET unisono::libfabric AND NOT UNISONO_SANITIZED)
    foreach(each across_rank ${room_target})
        target_compile_definitions(${each} PRIVATE UNISONO_TEST_LIBFABRIC)
    endforeach()
    target_link_libraries(across_rank PRIVATE unisono::libfabric)
endif()
if(NOT UNISONO_SANITIZED)
    target_compile_options(across_rank PRIVATE -O0)
endif()
add_dependencies(${room_target} world_rank across_rank unisono-run)
target_compile_definitions(${room_target} PRIVATE UNISONO_WORLD_RANK="$<TARGET_FILE:world_rank>"
                                                  UNISONO_ACROSS_RANK="$<TARGET_FILE:across_rank>"
                                                  UNISONO_RUN="$<TARGET_FILE:unisono-run>")
add_executable(faulty_rank ${folder}/helper/faulty.cpp)
target_link_libraries(faulty_rank PRIVATE unisono::unisono unisono_warnings)
add_dependencies(${room_target} faulty_rank)
target_compile_definitions(${room_target} PRIVATE UNISONO_FAULTY_RANK="$<TARGET_FILE:faulty_rank>")
# Sanitizers take their time, and what is looked at here is time.
if(NOT UNISONO_SANITIZED)
    add_test(NAME outside COMMAND ${Python3_EXECUTABLE} ${folder}/outside.py --rank $<TARGET_FILE:faulty_rank>
                                  --run $<TARGET_FILE:unisono-run> --parallel 4 --deadline 1000 --slack 4000)
    set_tests_properties(outside PROPERTIES TIMEOUT 300)
endif()

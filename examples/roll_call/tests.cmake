add_test(NAME example_roll_call COMMAND unisono-run -n 3 --timeout 60 $<TARGET_FILE:roll_call>)
set_tests_properties(example_roll_call PROPERTIES TIMEOUT 90 PASS_REGULAR_EXPRESSION
                     "\\[0\\] the squares of all ranks add up to 5\n")
add_test(NAME example_roll_call_death COMMAND unisono-run -n 3 --timeout 60 $<TARGET_FILE:roll_call> --die 1)
set_tests_properties(example_roll_call_death PROPERTIES TIMEOUT 90 PASS_REGULAR_EXPRESSION
                     "\\[[02]\\] unisono: peer_lost: rank 1 \\(pid [0-9]+\\)")
add_test(NAME example_roll_call_alone COMMAND roll_call)
set_tests_properties(example_roll_call_alone PROPERTIES TIMEOUT 60 PASS_REGULAR_EXPRESSION "rank 0 of 1")
# Checks the manifests of examples/deploy by the variables that their systems set, and by their
# schemas if tests/run.sh --all has installed them.
set(python ${PROJECT_SOURCE_DIR}/build/python/bin/python3)
if(NOT EXISTS ${python})
    set(python ${Python3_EXECUTABLE})
endif()
add_test(NAME example_deploy COMMAND ${python} ${CMAKE_CURRENT_SOURCE_DIR}/deploy/check.py $<TARGET_FILE:roll_call> $<TARGET_FILE:elastic>)
set_tests_properties(example_deploy PROPERTIES TIMEOUT 300 SKIP_RETURN_CODE 77)

output_test(example_roll_call TIMEOUT 90 COMMAND unisono-run -n 3 --timeout 60 $<TARGET_FILE:roll_call>
            PATTERN "\\[0\\] the squares of all ranks add up to 5\n")
output_test(example_roll_call_death FAILS TIMEOUT 90 COMMAND unisono-run -n 3 --timeout 60 $<TARGET_FILE:roll_call> --die 1
            PATTERN "\\[[02]\\] unisono: peer_lost: rank 1 \\(pid [0-9]+\\)")
output_test(example_roll_call_alone COMMAND roll_call PATTERN "rank 0 of 1")
# Checks the manifests of examples/deploy by the variables that their systems set, and by their
# schemas if tests/run.sh --all has installed them.
set(python ${PROJECT_SOURCE_DIR}/build/python/bin/python3)
if(NOT EXISTS ${python})
    set(python ${Python3_EXECUTABLE})
endif()
add_test(NAME example_deploy COMMAND ${python} ${CMAKE_CURRENT_SOURCE_DIR}/deploy/check.py $<TARGET_FILE:roll_call> $<TARGET_FILE:elastic>)
set_tests_properties(example_deploy PROPERTIES TIMEOUT 300 SKIP_RETURN_CODE 77)

add_test(NAME example_checkpoint COMMAND ${Python3_EXECUTABLE} ${folder}/check.py $<TARGET_FILE:checkpoint>
                                         $<TARGET_FILE:unisono-run>)
set_tests_properties(example_checkpoint PROPERTIES TIMEOUT 300 PROCESSORS 2)

add_test(NAME example_parallel_digits
         COMMAND ${Python3_EXECUTABLE} ${folder}/check.py $<TARGET_FILE:parallel_digits> $<TARGET_FILE:unisono-run>)
set_tests_properties(example_parallel_digits PROPERTIES TIMEOUT 300 PROCESSORS 2)

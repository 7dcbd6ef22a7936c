add_test(NAME example_parallel_serve COMMAND ${Python3_EXECUTABLE} ${folder}/check.py $<TARGET_FILE:parallel_serve>)
set_tests_properties(example_parallel_serve PROPERTIES TIMEOUT 300 PROCESSORS 2)

add_test(NAME example_sharded_digits COMMAND ${Python3_EXECUTABLE} ${folder}/check.py $<TARGET_FILE:sharded_digits>)
set_tests_properties(example_sharded_digits PROPERTIES TIMEOUT 300 PROCESSORS 2)

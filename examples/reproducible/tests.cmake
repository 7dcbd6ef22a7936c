add_test(NAME example_reproducible COMMAND reproducible --short)
set_tests_properties(example_reproducible PROPERTIES PASS_REGULAR_EXPRESSION "One hash each on a grid; float sums differ."
                                                     TIMEOUT 600 PROCESSORS 2)

add_test(NAME example_without_exceptions COMMAND without_exceptions)
set_tests_properties(example_without_exceptions PROPERTIES TIMEOUT 60
                     PASS_REGULAR_EXPRESSION "weights 2.000 -1.000\nstatus 6: .*learning_rate is -1")

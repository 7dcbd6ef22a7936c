add_test(NAME example_own_compression COMMAND own_compression)
set_tests_properties(example_own_compression PROPERTIES TIMEOUT 120 PROCESSORS 2
                     PASS_REGULAR_EXPRESSION "lawful.*compression +sign.*test accuracy 0\\.9[5-9]")

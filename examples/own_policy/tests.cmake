add_test(NAME example_own_policy COMMAND own_policy)
set_tests_properties(example_own_policy PROPERTIES TIMEOUT 120 PROCESSORS 2
                     PASS_REGULAR_EXPRESSION "reducer +by size.*optimizer +Lion.*test accuracy 0\\.9[5-9]")

add_test(NAME example_own_update COMMAND own_update)
set_tests_properties(example_own_update PROPERTIES TIMEOUT 120 PROCESSORS 2
                     PASS_REGULAR_EXPRESSION "elastic averaging: lawful.*update +elastic averaging.*test accuracy 0\\.9[5-9]")

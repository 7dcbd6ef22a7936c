add_test(NAME example_by_hand COMMAND by_hand)
set_tests_properties(example_by_hand PROPERTIES TIMEOUT 60 PASS_REGULAR_EXPRESSION "^found \\(1\\.000, -2\\.000, 3\\.000\\)\n$")

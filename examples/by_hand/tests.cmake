output_test(example_by_hand COMMAND by_hand PATTERN "^found \\(1\\.000, -2\\.000, 3\\.000\\)\n$")

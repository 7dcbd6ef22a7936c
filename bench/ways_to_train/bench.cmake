target_compile_definitions(${bench_target} PRIVATE DIGITS_DATA="${PROJECT_SOURCE_DIR}/examples/digits/data/digits.csv")
# The small network, once: each way trains to the same result. No time is asserted.
add_test(NAME bench_ways_to_train COMMAND ${bench_target} --quick)
set_tests_properties(bench_ways_to_train PROPERTIES LABELS bench TIMEOUT 120 RUN_SERIAL ON)

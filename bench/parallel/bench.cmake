target_compile_definitions(${bench_target} PRIVATE DIGITS_DATA="${PROJECT_SOURCE_DIR}/examples/digits/data/digits.csv")
add_test(NAME bench_parallel COMMAND ${bench_target} --quick)
set_tests_properties(bench_parallel PROPERTIES LABELS bench TIMEOUT 120)

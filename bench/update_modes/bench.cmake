target_compile_definitions(${bench_target} PRIVATE DIGITS_DATA="${PROJECT_SOURCE_DIR}/examples/digits/data/digits.csv")
add_test(NAME bench_update_modes COMMAND ${bench_target} --quick)
set_tests_properties(bench_update_modes PROPERTIES LABELS bench TIMEOUT 120)

add_test(NAME bench_predict COMMAND ${bench_target} ${PROJECT_SOURCE_DIR}/tests/data/c5n_efa.json)
set_tests_properties(bench_predict PROPERTIES LABELS bench TIMEOUT 60 PASS_REGULAR_EXPRESSION "median error: ")

add_test(NAME bench_overlap COMMAND ${bench_target} --quick)
set_tests_properties(bench_overlap PROPERTIES LABELS bench TIMEOUT 120)

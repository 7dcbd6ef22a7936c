add_test(NAME bench_idle_ranks COMMAND ${bench_target} --quick)
set_tests_properties(bench_idle_ranks PROPERTIES LABELS bench TIMEOUT 300)

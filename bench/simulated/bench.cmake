add_test(NAME bench_simulated_deaths COMMAND ${bench_target} --ranks 64 --deaths 0 3 --updates 4)
set_tests_properties(bench_simulated_deaths PROPERTIES LABELS bench TIMEOUT 60)

foreach(network efa tcp)
    add_test(NAME bench_predict_${network} COMMAND ${bench_target} ${PROJECT_SOURCE_DIR}/tests/data/c5n_${network}.json)
    set_tests_properties(bench_predict_${network} PROPERTIES LABELS bench TIMEOUT 60 PASS_REGULAR_EXPRESSION "median error: ")
endforeach()

foreach(network efa tcp)
    output_test(bench_predict_${network} COMMAND ${bench_target} ${PROJECT_SOURCE_DIR}/tests/support/data/c5n_${network}.json
                PATTERN "median error: ")
    set_tests_properties(bench_predict_${network} PROPERTIES LABELS bench)
endforeach()
find_package(Python3 COMPONENTS Interpreter REQUIRED)
add_test(NAME bench_predict_page COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/check_page.py
                                         ${PROJECT_SOURCE_DIR}/docs/scale.md $<TARGET_FILE:${bench_target}>)
set_tests_properties(bench_predict_page PROPERTIES LABELS bench TIMEOUT 120)

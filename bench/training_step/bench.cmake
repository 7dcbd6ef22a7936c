target_compile_definitions(${bench_target} PRIVATE DIGITS_DATA="${PROJECT_SOURCE_DIR}/examples/digits/data/digits.csv")

find_package(Python3 COMPONENTS Interpreter)
if(Python3_FOUND)
    # The smallest network and a few turns: it runs, and trains right. No time is asserted.
    add_test(NAME bench_training_step COMMAND ${Python3_EXECUTABLE} ${folder}/compare.py $<TARGET_FILE:${bench_target}>
                                              --quick --without-torch --plot ${CMAKE_CURRENT_BINARY_DIR}/training_step.svg)
    set_tests_properties(bench_training_step PROPERTIES LABELS bench SKIP_RETURN_CODE 77 TIMEOUT 120 RUN_SERIAL ON)
endif()

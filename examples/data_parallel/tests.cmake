foreach(case plain reference reducers options bad_input launched)
    add_test(NAME example_data_parallel_${case}
             COMMAND ${Python3_EXECUTABLE} ${folder}/check.py $<TARGET_FILE:data_parallel>
                     ${PROJECT_SOURCE_DIR}/tests/support/data/reference.json $<TARGET_FILE:unisono-run> ${case})
    set_tests_properties(example_data_parallel_${case} PROPERTIES TIMEOUT 300)
endforeach()

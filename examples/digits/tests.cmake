foreach(case ranks observed optimizers processes bad_input)
    add_test(NAME example_digits_${case}
             COMMAND ${Python3_EXECUTABLE} ${folder}/check.py $<TARGET_FILE:digits> ${folder}/data/digits.csv
                     $<TARGET_FILE:unisono-run> ${case})
    set_tests_properties(example_digits_${case} PROPERTIES TIMEOUT 600 PROCESSORS 2)
endforeach()

foreach(ranks 1 2 4)
    add_test(NAME example_c_gradients_${ranks} COMMAND unisono-run -n ${ranks} --timeout 60 $<TARGET_FILE:c_gradients>)
    set_tests_properties(example_c_gradients_${ranks} PROPERTIES TIMEOUT 90 PASS_REGULAR_EXPRESSION "loss 0[.]040\n$")
endforeach()

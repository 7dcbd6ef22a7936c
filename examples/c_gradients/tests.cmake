foreach(ranks 1 2 4)
    output_test(example_c_gradients_${ranks} TIMEOUT 90 COMMAND unisono-run -n ${ranks} --timeout 60 $<TARGET_FILE:c_gradients>
                PATTERN "loss 0[.]040\n$")
endforeach()

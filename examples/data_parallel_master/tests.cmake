foreach(ranks 1 2 3 4)
    add_test(NAME example_data_parallel_master_${ranks} COMMAND data_parallel_master --ranks ${ranks} --epochs 2)
    set_tests_properties(example_data_parallel_master_${ranks} PROPERTIES TIMEOUT 120 PROCESSORS 2
        PASS_REGULAR_EXPRESSION "90 updates.*loss in the replicas .* none\nloss on the master .* (none|[0-9.]+e-0[6-9])\n$")
endforeach()
# 90 updates x 3 ranks x 4,810 floats each way; inputs of 24 images x 64 floats, with or without
# labels; outputs and their gradients of 24 images x 10 floats.
set_property(TEST example_data_parallel_master_4 PROPERTY PASS_REGULAR_EXPRESSION
    "loss in the replicas +548.4 KiB +0 B +5.0 MiB +5.0 MiB [^\n]* none\nloss on the master +540.0 KiB +168.8 KiB +5.0 MiB")
add_test(NAME example_data_parallel_master_bad_input COMMAND data_parallel_master --ranks 0)
set_tests_properties(example_data_parallel_master_bad_input PROPERTIES PASS_REGULAR_EXPRESSION "^data_parallel_master: --ranks: [^\n]*\n$")

# With 4 ranks: 90 updates x 3 ranks x 4,810 floats each way; inputs of 24 images x 64 floats, with
# or without labels; outputs and their gradients of 24 images x 10 floats.
set(bytes_4 "loss in the replicas +548.4 KiB +0 B +5.0 MiB +5.0 MiB [^\n]* none\nloss on the master +540.0 KiB +168.8 KiB +5.0 MiB")
set(losses "90 updates.*loss in the replicas .* none\nloss on the master .* (none|[0-9.]+e-0[6-9])\n$")
foreach(ranks 1 2 3 4)
    output_test(example_data_parallel_master_${ranks} TIMEOUT 120 PROCESSORS 2
                COMMAND data_parallel_master --ranks ${ranks} --epochs 2 PATTERN "(?=.*${bytes_${ranks}})${losses}")
endforeach()
output_test(example_data_parallel_master_bad_input FAILS COMMAND data_parallel_master --ranks 0
            PATTERN "^data_parallel_master: --ranks: [^\n]*\n$")

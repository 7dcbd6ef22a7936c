output_test(example_without_exceptions COMMAND without_exceptions
            PATTERN "weights 2.000 -1.000\nstatus 6: .*learning_rate is -1")

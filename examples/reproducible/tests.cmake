output_test(example_reproducible TIMEOUT 600 PROCESSORS 2 COMMAND reproducible --short
            PATTERN "One hash each on a grid; float sums differ.")

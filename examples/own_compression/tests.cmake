output_test(example_own_compression TIMEOUT 120 PROCESSORS 2 COMMAND own_compression
            PATTERN "lawful.*compression +sign.*test accuracy 0\\.9[5-9]")

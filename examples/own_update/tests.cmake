output_test(example_own_update TIMEOUT 120 PROCESSORS 2 COMMAND own_update
            PATTERN "elastic averaging: lawful.*update +elastic averaging.*test accuracy 0\\.9[5-9]")

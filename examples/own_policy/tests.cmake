output_test(example_own_policy TIMEOUT 120 PROCESSORS 2 COMMAND own_policy
            PATTERN "reducer +by size.*optimizer +Lion.*test accuracy 0\\.9[5-9]")

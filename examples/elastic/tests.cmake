output_test(example_elastic TIMEOUT 120 PROCESSORS 2
            COMMAND unisono-run -n 4 --elastic 1 --timeout 100 $<TARGET_FILE:elastic> --kill 2@20 --kill 0@21 --kill 1@40
            PATTERN "one hash: the run of one rank has the same")
output_test(example_elastic_replaced TIMEOUT 120 PROCESSORS 2
            COMMAND unisono-run -n 3 --elastic 1:3 --timeout 100 $<TARGET_FILE:elastic> --kill 2@20 --kill 0@21 --pause 30
            PATTERN "added ranks? 3.*one hash: the run of one rank has the same")

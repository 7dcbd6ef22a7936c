add_test(NAME example_elastic COMMAND $<TARGET_FILE:unisono-run> -n 4 --elastic 1 --timeout 100 $<TARGET_FILE:elastic> --kill 2@20 --kill 0@21 --kill 1@40)
set_tests_properties(example_elastic PROPERTIES PASS_REGULAR_EXPRESSION "one hash: the run of one rank has the same" TIMEOUT 120 PROCESSORS 2)
add_test(NAME example_elastic_replaced COMMAND $<TARGET_FILE:unisono-run> -n 3 --elastic 1:3 --timeout 100 $<TARGET_FILE:elastic> --kill 2@20 --kill 0@21 --pause 30)
set_tests_properties(example_elastic_replaced PROPERTIES PASS_REGULAR_EXPRESSION "added ranks? 3.*one hash: the run of one rank has the same" TIMEOUT 120 PROCESSORS 2)

# 2(p - 1)(latency + n / (p * bandwidth)) = 14 * (1000 + 8192) ns, and 2 log2(p)(latency + n /
# bandwidth) = 6 * (1000 + 65536) ns.
add_test(NAME simulate COMMAND simulate --ranks 8 --bytes 65536 --latency 1e-6 --bandwidth 1e9)
set_tests_properties(simulate PROPERTIES
    PASS_REGULAR_EXPRESSION "ring +0.128688 ms +112 messages +917,504 bytes\ntree +0.399216 ms +14 messages"
    TIMEOUT 60)
add_test(NAME simulate_thousands COMMAND simulate --ranks 4096 --bytes 1000 --family tree --jitter 1e-6 --seed 7)
set_tests_properties(simulate_thousands PROPERTIES PASS_REGULAR_EXPRESSION "8,190 messages" TIMEOUT 60)
add_test(NAME simulate_refuses COMMAND simulate --ranks 8 --bandwidth -1)
set_tests_properties(simulate_refuses PROPERTIES
    PASS_REGULAR_EXPRESSION "--bandwidth: found -1. expected a number from 1 to" TIMEOUT 60)

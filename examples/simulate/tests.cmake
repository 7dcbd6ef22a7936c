# 2(p - 1)(latency + n / (p * bandwidth)) = 14 * (1000 + 8192) ns, and 2 log2(p)(latency + n /
# bandwidth) = 6 * (1000 + 65536) ns.
output_test(simulate COMMAND simulate --ranks 8 --bytes 65536 --latency 1e-6 --bandwidth 1e9
            PATTERN "ring +0.128688 ms +112 messages +917,504 bytes\ntree +0.399216 ms +14 messages")
output_test(simulate_thousands COMMAND simulate --ranks 4096 --bytes 1000 --family tree --jitter 1e-6 --seed 7
            PATTERN "8,190 messages")
output_test(simulate_refuses FAILS COMMAND simulate --ranks 8 --bandwidth -1
            PATTERN "--bandwidth: found -1. expected a number from 1 to")

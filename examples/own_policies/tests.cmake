output_test(example_own_policies TIMEOUT 120 PROCESSORS 2 COMMAND own_policies
            PATTERN "length-grouped: lawful.two-way ring: lawful.two-way ring: lawful.decoupled averaging: lawful.whole buckets: lawful.*padding: [4-6]. % with DistributedSampler, [0-9]+ % with length-grouped.*loss 0\\.[0-9]+, then 0\\.00.*sharding +whole buckets.*updates +20 of 40 elements.*loss 0\\.[0-9]+, then 0\\.00")
add_test(NAME example_own_policies_lines COMMAND ${Python3_EXECUTABLE} ${folder}/lines.py)

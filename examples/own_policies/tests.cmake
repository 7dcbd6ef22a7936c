output_test(example_own_policies TIMEOUT 120 PROCESSORS 2 COMMAND own_policies
            PATTERN "length-grouped: lawful.two-way ring: lawful.two-way ring: lawful.decoupled averaging: lawful.*padding: [4-6]. % with DistributedSampler, [0-9]+ % with length-grouped.*loss 0\\.[0-9]+, then 0\\.00")

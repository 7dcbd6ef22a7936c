add_test(NAME example_own_policies COMMAND own_policies)
set_tests_properties(example_own_policies PROPERTIES TIMEOUT 120 PROCESSORS 2
                     PASS_REGULAR_EXPRESSION "length-grouped: lawful.two-way ring: lawful.two-way ring: lawful.decoupled averaging: lawful.*padding: [4-6]. % with DistributedSampler, [0-9]+ % with length-grouped.*loss 0\\.[0-9]+, then 0\\.00")

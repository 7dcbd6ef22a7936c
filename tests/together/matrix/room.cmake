# In builds of few tests, one reducer is crossed in full with the rest, and all others pairwise.
# Servers, compressions, gossip and split models are in other rooms. Threads and memory meet in the
# same ways.
if(few)
    leave_out("full_(automatic|halving_doubling|parameter_server|ring|sum_only|tree)|/(served|several_workers|mixed|compressed|split|pairwise_4)[.]cpp$")
else()
    target_compile_definitions(${room_target} PRIVATE UNISONO_MATRIX_WHOLE)
endif()
# They instantiate the same policies: one translation unit takes two thirds of the time of six.
unite_sources("full_automatic full_halving_doubling full_parameter_server full_sum_only full_native full_ring full_tree \
pairwise_1 pairwise_2 pairwise_3 pairwise_4 compressed report reproducible mixed served")

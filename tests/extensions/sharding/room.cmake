target_link_libraries(${room_target} PRIVATE unisono_allocation_counter)
# In builds of few tests, sums on a grid stand for the others: they use memory in the same ways, and
# half as much is compiled.
if(few)
    leave_out("train_(plain|by_reducers|low)|costs")
    target_compile_definitions(${room_target} PRIVATE UNISONO_TEST_FEW)
endif()

if(thread_sanitizer) # it would not see what processes do
    leave_out("/(deaths|digits|running)[.]cpp$")
elseif(UNISONO_TEST_QUICK)
    leave_out("/deaths[.]cpp$")
endif()
leave_out_unless_all("/(asynchronous|sharding)[.]cpp$")
unite_sources("campaign collectives memory reproducible_sum" "deaths running asynchronous")
target_link_libraries(${room_target} PRIVATE unisono_allocation_counter)
leave_to_sanitizers("/(asynchronous|collectives|digits|reproducible_sum|running|sharding)[.]cpp$")

if(thread_sanitizer) # which would not see what processes do
    leave_out("/(deaths|digits|running)[.]cpp$")
elseif(UNISONO_TEST_QUICK)
    leave_out("/deaths[.]cpp$")
endif()
unite_sources("collectives memory reproducible_sum" "deaths running served")

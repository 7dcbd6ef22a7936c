# One rank runs at a time: what hands the turn from thread to thread is the same for all, and ThreadSanitizer sees it in these.
if(thread_sanitizer)
    leave_out("/(hogwild|overlap|served|times|trainer)[.]cpp$")
elseif(UNISONO_TEST_QUICK)
    leave_out("/overlap[.]cpp$")
endif()
leave_out_unless_all("/(hogwild|overlap|served|times)[.]cpp$")
unite_sources("collectives faults overlap times" "served trainer")

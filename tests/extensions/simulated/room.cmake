# One rank runs at a time. The handover from thread to thread is the same for all, so
# ThreadSanitizer needs only these tests.
if(thread_sanitizer)
    leave_out("/(overlap|served|times|trainer)[.]cpp$")
elseif(UNISONO_TEST_QUICK)
    leave_out("/overlap[.]cpp$")
endif()
leave_out_unless_all("/(overlap|served|times)[.]cpp$")
unite_sources("collectives faults overlap times" "served trainer")
leave_to_sanitizers("/(collectives|determinism|faults|served|times|trainer)[.]cpp$")

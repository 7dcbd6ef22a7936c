# Real processes that are forked: no threads before them. ThreadSanitizer makes one of its own, and sees nothing that tests of networks do not show.
if(thread_sanitizer)
    leave_out("/(ends|processes|observing|sharded|stages)[.]cpp$")
endif()
leave_out_unless_all("/(ends|observing|sharded|stages)[.]cpp$")
unite_sources("stages sharded" "processes observing" "membership admission")

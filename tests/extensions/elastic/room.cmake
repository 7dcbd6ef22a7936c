# These tests fork processes, and need processes without other threads. ThreadSanitizer starts a
# thread of its own, and would find nothing here that tests of networks do not show.
if(thread_sanitizer)
    leave_out("/(ends|processes|observing|sharded|stages)[.]cpp$")
else()
    set(room_apart elastic_processes) # half of the time
endif()
leave_out_unless_all("/(ends|observing|sharded|stages)[.]cpp$")
unite_sources("stages sharded" "processes observing" "membership admission")

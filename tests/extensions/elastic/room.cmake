# ThreadSanitizer starts a thread of its own, and processes that fork must have no other; it would
# find nothing in them that tests of networks do not show. Explorations and seeded memberships run
# in one thread.
if(thread_sanitizer)
    leave_out("/(ends|exploring|membership|processes|observing|sharded|stages)[.]cpp$")
else()
    set(room_apart elastic_processes) # half of the time
endif()
leave_out_unless_all("/(ends|observing|sharded|stages)[.]cpp$")
unite_sources("stages sharded ends checkpoints" "processes observing forming" "membership admission exploring")
leave_to_sanitizers("/(forming|loops)[.]cpp$")

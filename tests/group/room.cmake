unite_sources("context leaving progress_thread" "faults wait_any")

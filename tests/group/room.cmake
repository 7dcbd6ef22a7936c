unite_sources("capabilities context leaving progress_thread" "faults wait_any")

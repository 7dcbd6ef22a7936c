unite_sources("context progress_thread" "faults wait_any")

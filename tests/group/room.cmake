unite_sources("boards capabilities context leaving operation_pool progress_thread" "faults wait_any")

unite_sources("element hash list outcome random version")

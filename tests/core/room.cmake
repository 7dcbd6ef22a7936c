unite_sources("element list outcome random version")

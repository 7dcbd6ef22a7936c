unite_sources("drawing hierarchical mutants numbers proof timing")

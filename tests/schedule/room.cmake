unite_sources("cost drawing hierarchical mutants numbers proof")

unite_sources("all_reduce short" "others reproducible_sum campaign untyped blocks")

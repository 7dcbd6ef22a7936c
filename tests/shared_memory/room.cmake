unite_sources("collectives memory reproducible_sum" "deaths running served")

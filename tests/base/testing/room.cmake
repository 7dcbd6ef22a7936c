unite_sources("compression limits models optimizers policies ranks roles")

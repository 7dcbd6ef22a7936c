// Kernels of optimizers: see kernels.hpp.
#include "kernels.hpp"

void unisono::detail::kernels_of_optimizers() { KernelList().have_all(OptimizersOfDevices()); }

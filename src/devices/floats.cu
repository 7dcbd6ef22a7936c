// Kernels for arrays of float: see kernels.hpp.
#include "kernels.hpp"

void unisono::detail::kernels_of_floats() { static_cast<void>(KernelsOfFloats<float>()); }

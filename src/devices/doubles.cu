// Kernels for arrays of double: see kernels.hpp.
#include "kernels.hpp"

void unisono::detail::kernels_of_doubles() { static_cast<void>(KernelsOfFloats<double>()); }

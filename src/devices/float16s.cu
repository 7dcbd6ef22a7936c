// Kernels for arrays of float16: see kernels.hpp.
#include "kernels.hpp"

void unisono::detail::kernels_of_float16s() { static_cast<void>(KernelsOfFloats<float16>()); }

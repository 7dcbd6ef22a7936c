// Kernels for arrays of bfloat16: see kernels.hpp.
#include "kernels.hpp"

void unisono::detail::kernels_of_bfloat16s() { static_cast<void>(KernelsOfFloats<bfloat16>()); }

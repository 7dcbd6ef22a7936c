// The stand-in for NCCL, as a source of this folder, see runtime.cpp.
#include "nccl.cpp"

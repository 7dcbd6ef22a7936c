// The stand-in for the CUDA runtime, as a source of this folder: setuptools puts objects beside
// their sources' paths.
#include "cuda.cpp"

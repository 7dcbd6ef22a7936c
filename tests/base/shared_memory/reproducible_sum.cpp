// Sums on a grid, with ranks that are processes.
#define UNISONO_TEST_TRANSPORT unisono::SharedMemory
#include "../collective/reproducible_sum.cpp"

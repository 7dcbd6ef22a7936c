// Sums on a grid, with processes for ranks.
#define UNISONO_TEST_TRANSPORT unisono::SharedMemory
#include "../collective/reproducible_sum.cpp"

#define UNISONO_TEST_TRANSPORT unisono::SharedMemory
#include "../matrix/full_sum_only.cpp"

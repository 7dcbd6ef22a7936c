#define UNISONO_TEST_TRANSPORT unisono::SharedMemory
#include "../matrix/pairwise_3.cpp"

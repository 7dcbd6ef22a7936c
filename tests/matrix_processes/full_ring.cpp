#define UNISONO_TEST_TRANSPORT unisono::SharedMemory
#include "../matrix/full_ring.cpp"

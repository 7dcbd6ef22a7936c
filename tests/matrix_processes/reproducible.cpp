#define UNISONO_TEST_TRANSPORT unisono::SharedMemory
#include "../matrix/reproducible.cpp"

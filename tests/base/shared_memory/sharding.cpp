// The bits of sharded updates, and a rank that dies in one, with ranks that are processes.
#define UNISONO_TEST_TRANSPORT unisono::SharedMemory
#include "../trainer/sharding.cpp"

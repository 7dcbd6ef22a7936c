// The bits of sharded updates, and a rank that dies in one, with processes for ranks.
#define UNISONO_TEST_TRANSPORT unisono::SharedMemory
#include "../trainer/sharding.cpp"

// The suites of the collectives and of faults, with ranks that are processes.
#define UNISONO_TEST_TRANSPORT unisono::SharedMemory
#include "../collective/all_reduce.cpp"
#include "../collective/others.cpp"
#include "../collective/short.cpp"
#include "../group/faults.cpp"
#include "../group/prepared.cpp"
#include "../group/waiting.cpp"

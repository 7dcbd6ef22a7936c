// Random collectives, and one of more than two gigabytes, with ranks that are processes.
#define UNISONO_TEST_TRANSPORT unisono::SharedMemory
#include "../collective/campaign.cpp"

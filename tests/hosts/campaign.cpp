// The campaign of random collectives, on two hosts that ranks take in turns.
#include "support.hpp"

#define UNISONO_TEST_CASES_IN_ALL 600

#include "../collective/campaign.cpp"

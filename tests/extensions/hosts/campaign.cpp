// The campaign of random collectives, on two hosts that take turns in the order of ranks.
#include "support.hpp"

#define UNISONO_TEST_CASES_IN_ALL 600

#include "../../base/collective/campaign.cpp"

// The campaign of random collectives, over the provider that UNISONO_PROVIDER names, or the best
// one of this machine.
#include "support.hpp"

#define UNISONO_TEST_CASES_IN_ALL 600

#include "../../base/collective/campaign.cpp"

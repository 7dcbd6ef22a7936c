// The campaign of random collectives, over sockets.
#include "support.hpp"

#include "../../base/collective/campaign.cpp"

// The campaign of random collectives, over sockets.
#include "support.hpp"

#include "../collective/campaign.cpp"

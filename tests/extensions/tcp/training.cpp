// The common training suite over sockets.
#include "support.hpp"

#include "support/network_training.hpp"

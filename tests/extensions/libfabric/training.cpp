// The common training suite over libfabric.
#include "support.hpp"

#include "support/network_training.hpp"

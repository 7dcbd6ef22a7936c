// The part of the library unisono::compiled that has launch/ and groups over Tcp (include/unisono/core/config.hpp).
#ifndef UNISONO_COMPILED
#define UNISONO_COMPILED
#endif
#define UNISONO_BUILDS_PART UNISONO_PART_NETWORK
#include "unisono/extensions/launch/sockets/fork_run.hpp"
#include "unisono/tcp.hpp"

// The part of the library unisono::compiled that has groups over Hosts<Tcp> (include/unisono/core/config.hpp).
#ifndef UNISONO_COMPILED
#define UNISONO_COMPILED
#endif
#define UNISONO_BUILDS_PART UNISONO_PART_HOSTS
#include "unisono/hosts.hpp"

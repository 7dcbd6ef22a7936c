#pragma once

/// \file
/// A group: ranks that act together over one transport.
///
/// Laws: all ranks of a group start its collectives in the same order with the same arguments. What
/// must be equal is compared; a mismatch is an error on every rank, which names both sides. Several
/// operations may be in flight, on one group or on several that share a rank. One thread drives a
/// rank. After a fault every call on every group of the world throws it.

#include "unisono/group/group_class.hpp"

#if UNISONO_DEFINES
#include "unisono/group/group_definitions.hpp"
#endif

#pragma once

/// \file
/// The parts of `join` for processes of one host that the library `unisono::compiled` has
/// (core/config.hpp). In header-only mode this is empty.

#include "unisono/extensions/launch/control/control_plane.hpp"
#include "unisono/transport/overseer.hpp"
#include "unisono/transport/shared_memory/join.hpp"

#if defined(UNISONO_COMPILED)
UNISONO_NAMESPACE_BEGIN

#if UNISONO_DEFINES_PART(UNISONO_PART_NETWORK)
#define UNISONO_COMPILED_JOIN template
#else
#define UNISONO_COMPILED_JOIN extern template
#endif
UNISONO_COMPILED_JOIN class detail::ControlOverseer<ControlPlane>;
UNISONO_COMPILED_JOIN SharedMemory SharedMemory::join<ControlPlane>(ControlPlane, nanoseconds, std::size_t);

UNISONO_NAMESPACE_END
#endif

#pragma once

/// \file
/// Ranks on any hosts, over sockets: `join<Tcp>()` where a launcher has started processes,
/// `run<Tcp>(n, body)` for threads of this process. Not part of the umbrella: it includes sockets
/// and threads.

#include "unisono/group/group_definitions.hpp"
#include "unisono/join.hpp"
#include "unisono/transport/tcp/join.hpp"

#pragma once

/// \file
/// Ranks on any hosts, over sockets: `join<Tcp>()` for processes that a launcher has started,
/// `run<Tcp>(n, body)` for threads of this process. Not part of the umbrella, since it includes
/// sockets and threads.

#include "unisono/extensions/tcp/compiled.hpp"
#include "unisono/extensions/tcp/join.hpp"
#include "unisono/group/group.hpp"
#include "unisono/join.hpp"

#pragma once

/// \file
/// Worlds that outlive their ranks: see elastic/world.hpp and docs/elastic.md. Not part of the
/// umbrella, since it includes sockets and threads.

#include "unisono/elastic/trainer.hpp"
#include "unisono/elastic/world.hpp"
#include "unisono/group/group_definitions.hpp"

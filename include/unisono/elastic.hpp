#pragma once

/// \file
/// Worlds that outlive their ranks: see extensions/elastic/world.hpp and docs/elastic.md. Not part
/// of the umbrella, since it includes sockets and threads.

#include "unisono/extensions/elastic/trainer.hpp"
#include "unisono/extensions/elastic/world.hpp"

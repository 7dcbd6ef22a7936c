#pragma once

/// \file
/// The former path of what unisono/launch.hpp has.

#include "unisono/launch.hpp"

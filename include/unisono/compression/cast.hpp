#pragma once

/// \file
/// The former path of what unisono/compression.hpp has.

#include "unisono/compression.hpp"

#pragma once

/// \file
/// The former path of what unisono/checkpoint.hpp has.

#include "unisono/checkpoint.hpp"

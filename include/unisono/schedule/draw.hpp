#pragma once

/// \file
/// The former path of what unisono/laboratory.hpp has.

#include "unisono/laboratory.hpp"

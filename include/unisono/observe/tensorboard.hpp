#pragma once

/// \file
/// The former path of what unisono/observe.hpp has.

#include "unisono/observe.hpp"

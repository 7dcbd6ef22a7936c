#pragma once

/// \file
/// The former path of what unisono/reducers.hpp has.

#include "unisono/reducers.hpp"

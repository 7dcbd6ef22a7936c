#pragma once

/// \file
/// The former path of what unisono/trainers.hpp has.

#include "unisono/trainers.hpp"

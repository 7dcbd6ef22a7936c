#pragma once

/// \file
/// Model parallelism: the room parallel/. Not part of unisono.hpp, which few programs would want to compile it with.

#include "unisono/parallel/parallel.hpp"

#pragma once

/// \file
/// Model parallelism: the headers of parallel/. Not part of unisono.hpp, since few programs need
/// it.

#include "unisono/extensions/parallel/parallel.hpp"

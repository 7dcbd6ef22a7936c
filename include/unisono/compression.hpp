#pragma once

/// \file
/// Wire formats of gradients with fewer bits, Adasum, and a run for formats of your own.

#include "unisono/extensions/compression/adasum.hpp"
#include "unisono/extensions/compression/cast.hpp"
#include "unisono/extensions/compression/fp8.hpp"
#include "unisono/extensions/compression/gathered.hpp"
#include "unisono/extensions/compression/int8.hpp"
#include "unisono/extensions/compression/one_bit.hpp"
#include "unisono/extensions/compression/power_sgd.hpp"
#include "unisono/extensions/compression/top_k.hpp"
#include "unisono/unisono.hpp"

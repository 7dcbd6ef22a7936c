#pragma once

/// \file
/// Wire formats of gradients with fewer bits, and Adasum.

#include "unisono/compression/adasum.hpp"
#include "unisono/compression/cast.hpp"
#include "unisono/compression/fp8.hpp"
#include "unisono/compression/int8.hpp"
#include "unisono/compression/one_bit.hpp"
#include "unisono/compression/power_sgd.hpp"
#include "unisono/compression/top_k.hpp"
#include "unisono/unisono.hpp"

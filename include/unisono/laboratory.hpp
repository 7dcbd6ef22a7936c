#pragma once

/// \file
/// Schedules in the laboratory: proofs, certificates, times, drawings.

#include "unisono/extensions/laboratory/certificate.hpp"
#include "unisono/extensions/laboratory/draw.hpp"
#include "unisono/extensions/laboratory/timing.hpp"
#include "unisono/extensions/laboratory/verify.hpp"

#pragma once

/// \file
/// Model parallelism: the headers of extensions/parallel/, also what proves, times and draws a
/// pipeline schedule. Not part of unisono.hpp, since few programs need it.

#include "unisono/extensions/parallel/parallel.hpp"
#include "unisono/extensions/parallel/pipeline_drawing.hpp"
#include "unisono/extensions/parallel/pipeline_proof.hpp"
#include "unisono/extensions/parallel/pipeline_timeline.hpp"

#pragma once

/// \file
/// The room of model parallelism: layers on ranks, and both kinds of parallelism at once. Not in the umbrella: unisono/parallel.hpp.
///
/// | header | holds |
/// |---|---|
/// | mesh.hpp | named axes over a world, and groups along them |
/// | pipeline.hpp | what a pipeline schedule is; gpipe.hpp, one_forward_one_backward.hpp, interleaved.hpp |
/// | pipeline_proof.hpp, pipeline_timeline.hpp, pipeline_drawing.hpp | prove, simulate, draw a pipeline schedule |

#include "unisono/parallel/gpipe.hpp"
#include "unisono/parallel/interleaved.hpp"
#include "unisono/parallel/mesh.hpp"
#include "unisono/parallel/one_forward_one_backward.hpp"
#include "unisono/parallel/pipeline.hpp"

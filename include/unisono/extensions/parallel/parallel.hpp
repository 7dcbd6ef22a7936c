#pragma once

/// \file
/// Model parallelism: layers distributed over ranks, alone or together with data parallelism. Not
/// in the umbrella: include unisono/parallel.hpp.
/// - mesh.hpp: named axes over a world, and groups along them.
/// - pipeline.hpp: pipeline schedules; gpipe.hpp, one_forward_one_backward.hpp, interleaved.hpp.
/// - pipeline_proof.hpp, pipeline_timeline.hpp, pipeline_drawing.hpp: prove, simulate and draw a
///   pipeline schedule.
/// - layer.hpp, placement.hpp: a model as a sequence of layers; their placement, given or balanced.
/// - pipeline_model.hpp: such a model on the ranks of a group, trained by any `Trainer`.
/// - branches.hpp: a layer of independent branches that are distributed over the ranks.
/// - tensor.hpp: linear layers split by columns or rows, with the user's own matrix product.
/// - stream.hpp: inference: requests go through the stages of a split model, or to replicas of a
///   small model.
/// - padding.hpp: widths that suit devices badly.

#include "unisono/extensions/parallel/branches.hpp"
#include "unisono/extensions/parallel/gpipe.hpp"
#include "unisono/extensions/parallel/interleaved.hpp"
#include "unisono/extensions/parallel/mesh.hpp"
#include "unisono/extensions/parallel/one_forward_one_backward.hpp"
#include "unisono/extensions/parallel/pipeline.hpp"
#include "unisono/extensions/parallel/pipeline_model.hpp"
#include "unisono/extensions/parallel/stream.hpp"
#include "unisono/extensions/parallel/tensor.hpp"

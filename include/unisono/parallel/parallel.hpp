#pragma once

/// \file
/// Model parallelism: layers on ranks, and both kinds of parallelism at once. Not in the umbrella:
/// include unisono/parallel.hpp.
/// - mesh.hpp: named axes over a world, and groups along them.
/// - pipeline.hpp: pipeline schedules; gpipe.hpp, one_forward_one_backward.hpp, interleaved.hpp.
/// - pipeline_proof.hpp, pipeline_timeline.hpp, pipeline_drawing.hpp: prove, simulate and draw a
///   pipeline schedule.
/// - layer.hpp, placement.hpp: a model as a sequence of layers; their placement, by hand or
///   balanced.
/// - pipeline_model.hpp: such a model on the ranks of a group, trained by any `Trainer`.
/// - branches.hpp: a layer of independent branches, some on each rank.
/// - tensor.hpp: linear layers split by columns or rows, around the user's own matrix product.
/// - stream.hpp: inference: requests through the stages of a split model, or to replicas of a small
///   one.
/// - padding.hpp: widths that suit devices badly.

#include "unisono/parallel/branches.hpp"
#include "unisono/parallel/gpipe.hpp"
#include "unisono/parallel/interleaved.hpp"
#include "unisono/parallel/mesh.hpp"
#include "unisono/parallel/one_forward_one_backward.hpp"
#include "unisono/parallel/pipeline.hpp"
#include "unisono/parallel/pipeline_model.hpp"
#include "unisono/parallel/stream.hpp"
#include "unisono/parallel/tensor.hpp"

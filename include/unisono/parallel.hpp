#pragma once

/// \file
/// Model parallelism: layers distributed over ranks, alone or together with data parallelism. Not
/// part of unisono.hpp, since few programs need it. In extensions/parallel:
/// - mesh: named axes over a world, and groups along them.
/// - pipeline, pipeline_schedules: what a pipeline schedule is, and the schedules.
/// - pipeline_proof, pipeline_timeline: prove, simulate and draw a pipeline schedule.
/// - layer, pipeline_options: a model as a sequence of layers; their placement, given or balanced;
///   widths that suit devices badly.
/// - pipeline_model: such a model on the ranks of a group, trained by any `Trainer`.
/// - branches: a layer of independent branches that are distributed over the ranks.
/// - tensor: linear layers split by columns or rows, with the user's own matrix product.
/// - stream: inference: requests go through the stages of a split model, or to replicas of a
///   small model.

#include "unisono/extensions/parallel/branches.hpp"
#include "unisono/extensions/parallel/mesh.hpp"
#include "unisono/extensions/parallel/pipeline.hpp"
#include "unisono/extensions/parallel/pipeline_model.hpp"
#include "unisono/extensions/parallel/pipeline_proof.hpp"
#include "unisono/extensions/parallel/pipeline_schedules.hpp"
#include "unisono/extensions/parallel/pipeline_timeline.hpp"
#include "unisono/extensions/parallel/stream.hpp"
#include "unisono/extensions/parallel/tensor.hpp"

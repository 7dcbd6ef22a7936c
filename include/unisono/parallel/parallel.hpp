#pragma once

/// \file
/// The room of model parallelism: layers on ranks, and both kinds of parallelism at once. Not in the umbrella: unisono/parallel.hpp.
///
/// | header | holds |
/// |---|---|
/// | mesh.hpp | named axes over a world, and groups along them |
/// | pipeline.hpp | what a pipeline schedule is; gpipe.hpp, one_forward_one_backward.hpp, interleaved.hpp |
/// | pipeline_proof.hpp, pipeline_timeline.hpp, pipeline_drawing.hpp | prove, simulate, draw a pipeline schedule |
/// | layer.hpp, placement.hpp | a model as a sequence of layers; which are where, by hand or by a balancer |
/// | pipeline_model.hpp | such a model on the ranks of a group: trained by any `Trainer`, by any schedule |
/// | branches.hpp | a layer of independent branches, some on each rank |
/// | tensor.hpp | linear layers split by columns or rows, around the user's own matrix product |
/// | stream.hpp | inference: requests through the stages of a split model, or to replicas of a small one |
/// | padding.hpp | widths that devices do not like |

#include "unisono/parallel/branches.hpp"
#include "unisono/parallel/gpipe.hpp"
#include "unisono/parallel/interleaved.hpp"
#include "unisono/parallel/mesh.hpp"
#include "unisono/parallel/one_forward_one_backward.hpp"
#include "unisono/parallel/pipeline.hpp"
#include "unisono/parallel/pipeline_model.hpp"
#include "unisono/parallel/stream.hpp"
#include "unisono/parallel/tensor.hpp"

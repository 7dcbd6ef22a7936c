#pragma once

/// \file
/// Collectives: typed functions on a group.
///
/// | function | header |
/// |---|---|
/// | all_reduce | all_reduce.hpp |
/// | broadcast, reduce, gather, scatter | rooted.hpp |
/// | all_gather, reduce_scatter, all_to_all, barrier | exchange.hpp |
/// | send, receive | point_to_point.hpp |
///
/// For each function, `start_...` returns an `Operation` instead of waiting. Data are anything that
/// std::span can view. The last argument names a family of schedules (schedule/families.hpp); the
/// default is the transport's best (native.hpp).

#include "unisono/collective/all_reduce.hpp"
#include "unisono/collective/exchange.hpp"
#include "unisono/collective/point_to_point.hpp"
#include "unisono/collective/rooted.hpp"

#pragma once

/// \file
/// The part of a group over one transport that the library `unisono::compiled` has: its class and
/// the starts of its collectives. `Template` is `template` in the
/// library, and `extern template` in a program. The library also instantiates the engine, which a
/// program does not define.

#include "unisono/collective/all_reduce.hpp"
#include "unisono/collective/exchange.hpp"
#include "unisono/collective/rooted.hpp"
#include "unisono/group/group.hpp"

// NOLINTBEGIN(bugprone-macro-parentheses): the arguments are types and keywords
#define UNISONO_COMPILED_COLLECTIVE(Template, Transport, What)                                                 \
    Template void detail::plan_of_family<Collective::What, Transport, NativeSchedule>(GroupCore&, const Call&, \
                                                                                      OperationRequest&);
#define UNISONO_COMPILED_GROUP(Template, Transport)                  \
    Template class Group<Transport>;                                 \
    UNISONO_COMPILED_COLLECTIVE(Template, Transport, all_reduce)     \
    UNISONO_COMPILED_COLLECTIVE(Template, Transport, reduce_scatter) \
    UNISONO_COMPILED_COLLECTIVE(Template, Transport, all_gather)     \
    UNISONO_COMPILED_COLLECTIVE(Template, Transport, broadcast)      \
    UNISONO_COMPILED_COLLECTIVE(Template, Transport, reduce)         \
    UNISONO_COMPILED_COLLECTIVE(Template, Transport, gather)         \
    UNISONO_COMPILED_COLLECTIVE(Template, Transport, scatter)        \
    UNISONO_COMPILED_COLLECTIVE(Template, Transport, all_to_all)     \
    UNISONO_COMPILED_COLLECTIVE(Template, Transport, barrier)
// NOLINTEND(bugprone-macro-parentheses)

#pragma once

/// \file
/// Programs that choose their transport at run time: by a name, for threads or processes that the
/// program starts, or as a launcher has started them. See extensions/any/any.hpp. Not part of the
/// umbrella.

#include "unisono/extensions/any/any.hpp"
#include "unisono/group/run_processes.hpp"
#include "unisono/join.hpp"

#include <concepts>
#include <memory>
#include <string_view>

UNISONO_NAMESPACE_BEGIN

/// Runs `body(world)`, where `world` is a `Group<AnyTransport>&`, on ranks of the named transport:
/// threads of this process ("in_process") or processes forked from it ("shared_memory"). Otherwise
/// as `run` of that transport. Errors: bad_input for another name.
template <class Transport, class Body>
    requires std::same_as<Transport, AnyTransport>
void run(std::string_view transport, int ranks, Body body, const RunOptions& options = {}) {
    detail::begin_run(ranks, options);
    const auto shared = std::make_shared<AnyWorld>(ranks, transport);
    if (shared->spans_processes()) return detail::run_in_processes<AnyTransport>(shared, body, options);
    detail::run_world<AnyTransport>(shared, body, options);
}

static_assert(thread_transport<AnyTransport> && joinable_transport<AnyTransport>);

UNISONO_NAMESPACE_END

#pragma once

/// \file
/// Ranks on several hosts, over shared memory within a host and a network between hosts:
/// `join<Hosts<Tcp>>()` for processes that a launcher has started. For `Hosts<Libfabric>` also
/// include unisono/libfabric.hpp. Not part of the umbrella.

#include "unisono/collective/native_on_hosts.hpp"
#include "unisono/extensions/hosts/compiled.hpp"
#include "unisono/extensions/hosts/join.hpp"
#include "unisono/tcp.hpp"

UNISONO_NAMESPACE_BEGIN

static_assert(knows_hosts<Hosts<Tcp>>);

UNISONO_NAMESPACE_END

#pragma once

/// \file
/// Ranks on several hosts, over shared memory within a host and a network between hosts:
/// `join<Hosts<Tcp>>()` for processes that a launcher has started. For `Hosts<Libfabric>` also
/// include unisono/libfabric.hpp. Not part of the umbrella.

#include "unisono/collective/native_on_hosts.hpp"
#include "unisono/extensions/hosts/hosts.hpp"
#include "unisono/tcp.hpp"

#if defined(UNISONO_COMPILED) // what the library unisono::compiled has
#if UNISONO_DEFINES_PART(UNISONO_PART_HOSTS)
#define UNISONO_COMPILED_HOSTS template
#else
#define UNISONO_COMPILED_HOSTS extern template
#endif

UNISONO_NAMESPACE_BEGIN

UNISONO_COMPILED_HOSTS class Hosts<Tcp>;
UNISONO_COMPILED_GROUP(UNISONO_COMPILED_HOSTS, Hosts<Tcp>)
UNISONO_COMPILED_HOSTS Hosts<Tcp> Hosts<Tcp>::join<ControlPlane>(ControlPlane, nanoseconds, const HostsOptions<Tcp>&);
UNISONO_COMPILED_HOSTS Group<Hosts<Tcp>> join<Hosts<Tcp>>(ControlPlane, const JoinOptions&, const HostsOptions<Tcp>&);
UNISONO_COMPILED_HOSTS Group<Hosts<Tcp>> join<Hosts<Tcp>>(const JoinOptions&, const HostsOptions<Tcp>&);
UNISONO_COMPILED_HOSTS void detail::run_on<Hosts<Tcp>>(Group<Hosts<Tcp>>, RankBody<Hosts<Tcp>>, const JoinOptions&);
UNISONO_COMPILED_HOSTS void detail::run_new_world<Hosts<Tcp>>(int, RankBody<Hosts<Tcp>>, const RunOptions&);

UNISONO_NAMESPACE_END
#endif

UNISONO_NAMESPACE_BEGIN

static_assert(knows_hosts<Hosts<Tcp>>);

UNISONO_NAMESPACE_END

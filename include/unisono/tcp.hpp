#pragma once

/// \file
/// Ranks on any hosts, over sockets: `join<Tcp>()` for processes that a launcher has started,
/// `run<Tcp>(n, body)` for threads of this process. Not part of the umbrella, since it includes
/// sockets and threads.

#include "unisono/extensions/tcp/tcp.hpp"
#include "unisono/group/group.hpp"
#include "unisono/group/run.hpp"
#include "unisono/join.hpp"

#if defined(UNISONO_COMPILED) // what the library unisono::compiled has
#include "unisono/compiled/groups.hpp"
#if UNISONO_DEFINES_PART(UNISONO_PART_NETWORK)
#define UNISONO_COMPILED_TCP template
#else
#define UNISONO_COMPILED_TCP extern template
#endif

UNISONO_NAMESPACE_BEGIN

UNISONO_COMPILED_TCP class detail::FramedEndpoint<detail::TcpWire>;
UNISONO_COMPILED_GROUP(UNISONO_COMPILED_TCP, Tcp)
UNISONO_COMPILED_TCP Tcp Tcp::join<ControlPlane>(ControlPlane, nanoseconds, const TcpOptions&);
UNISONO_COMPILED_TCP Group<Tcp> join<Tcp>(ControlPlane, const JoinOptions&, const TcpOptions&);
UNISONO_COMPILED_TCP Group<Tcp> join<Tcp>(const JoinOptions&, const TcpOptions&);
UNISONO_COMPILED_TCP void detail::run_on<Tcp>(Group<Tcp>, RankBody<Tcp>, const JoinOptions&);
UNISONO_COMPILED_TCP void detail::run_new_world<Tcp>(int, RankBody<Tcp>, const RunOptions&);

UNISONO_NAMESPACE_END
#endif

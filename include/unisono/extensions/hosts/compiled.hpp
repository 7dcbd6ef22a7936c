#pragma once

/// \file
/// Groups over `Hosts<Tcp>`, which the library `unisono::compiled` has (core/config.hpp). In
/// header-only mode this is empty.

#include "unisono/collective/native_on_hosts.hpp"
#include "unisono/extensions/hosts/join.hpp"
#include "unisono/extensions/tcp/compiled.hpp"

#if defined(UNISONO_COMPILED)
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

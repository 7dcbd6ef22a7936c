#pragma once

/// \file
/// How processes find each other: identities from launchers, rendezvous, and ranks by fork.

#include "unisono/extensions/launch/rendezvous/identity.hpp"
#include "unisono/extensions/launch/rendezvous/rendezvous.hpp"
#include "unisono/extensions/launch/rendezvous/rendezvous_store.hpp"
#include "unisono/extensions/launch/sockets/fork_run.hpp"
#include "unisono/launch/processes.hpp"

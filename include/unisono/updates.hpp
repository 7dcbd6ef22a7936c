#pragma once

/// \file
/// Rarer updates: with servers (Asynchronous, BoundedStaleness, BackupWorkers, DelayCompensated),
/// with common parameters (Hogwild), with neighbours (Gossip), and in parts (StreamingDiloco).

#include "unisono/extensions/updates/asynchronous.hpp"
#include "unisono/extensions/updates/gossip.hpp"
#include "unisono/extensions/updates/hogwild.hpp"
#include "unisono/extensions/updates/streaming_diloco.hpp"
#include "unisono/unisono.hpp"

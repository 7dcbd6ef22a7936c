#pragma once

/// \file
/// Rarer updates: with servers (Asynchronous, BoundedStaleness, BackupWorkers, DelayCompensated),
/// with common parameters (Hogwild), with neighbours (Gossip), and in parts (StreamingDiloco).

#include "unisono/unisono.hpp"
#include "unisono/update/asynchronous.hpp"
#include "unisono/update/backup_workers.hpp"
#include "unisono/update/bounded_staleness.hpp"
#include "unisono/update/delay_compensated.hpp"
#include "unisono/update/gossip.hpp"
#include "unisono/update/hogwild.hpp"
#include "unisono/update/streaming_diloco.hpp"

#pragma once

/// \file
/// The umbrella: all of Unisono that needs nothing but the standard library and POSIX.

#include "unisono/arithmetic/accumulate.hpp"
#include "unisono/arithmetic/apply.hpp"
#include "unisono/arithmetic/arithmetic.hpp"
#include "unisono/arithmetic/kernels.hpp"
#include "unisono/arithmetic/operations.hpp"
#include "unisono/arithmetic/reduction.hpp"
#include "unisono/arithmetic/scale.hpp"
#include "unisono/arithmetic/vectorised.hpp"
#include "unisono/collective/collective.hpp"
#include "unisono/core/config.hpp"
#include "unisono/core/element.hpp"
#include "unisono/core/error.hpp"
#include "unisono/core/policy.hpp"
#include "unisono/core/text.hpp"
#include "unisono/core/time.hpp"
#include "unisono/core/view.hpp"
#include "unisono/group/group.hpp"
#include "unisono/group/run.hpp"
#include "unisono/layout/layout.hpp"
#include "unisono/layout/owners.hpp"
#include "unisono/schedule/families.hpp"
#include "unisono/schedule/schedule.hpp"
#include "unisono/transport/in_process.hpp"
#include "unisono/transport/transport.hpp"

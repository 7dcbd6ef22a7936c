#pragma once

/// \file
/// The names of the library whose parts this program uses.

#include "unisono/core/config.hpp"

UNISONO_NAMESPACE_BEGIN
namespace detail {}
UNISONO_NAMESPACE_END

namespace unisono_run {

using namespace unisono;
using namespace unisono::detail;

} // namespace unisono_run

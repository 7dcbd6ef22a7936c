#pragma once

/// \file
/// The part of `<memory>` that declarations use: std::unique_ptr and std::shared_ptr.
///
/// With libstdc++ only this part is included, as core/standard.hpp does for other headers. A
/// program that uses the rest includes the standard header.

#include "unisono/core/config.hpp"

#include <cstddef> // says which standard library it is

#if defined(__GLIBCXX__) && __has_include(<bits/shared_ptr.h>)
#include <bits/shared_ptr.h>
#include <bits/unique_ptr.h>
#else
#include <memory>
#endif

#pragma once

/// \file
/// The one place that holds the version; CMake and Conan read it from here.

#define UNISONO_VERSION_MAJOR 0
#define UNISONO_VERSION_MINOR 1
#define UNISONO_VERSION_PATCH 0

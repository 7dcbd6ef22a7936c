#pragma once

/// \file
/// The only definition of the version; CMake and Conan read it from here.

#define UNISONO_VERSION_MAJOR 0
#define UNISONO_VERSION_MINOR 1
#define UNISONO_VERSION_PATCH 0

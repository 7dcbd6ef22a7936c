#pragma once

/// \file
/// The room of model parallelism: layers on ranks, and both kinds of parallelism at once. Not in the umbrella: unisono/parallel.hpp.
///
/// | header | holds |
/// |---|---|
/// | mesh.hpp | named axes over a world, and groups along them |

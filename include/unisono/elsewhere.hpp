#pragma once

/// \file
/// Names that the umbrella does not define, each with the header that does. A program that lacks
/// the header gets one error, "incomplete type", and the compiler's note shows the line below with
/// the header's name.

#include "unisono/core/config.hpp"

UNISONO_NAMESPACE_BEGIN

struct Reproducible;        // needs #include <unisono/reproducible.hpp>
struct NarrowReproducible;  // needs #include <unisono/reproducible.hpp>
struct GradientSharding;    // needs #include <unisono/sharded.hpp>
struct ParameterSharding;   // needs #include <unisono/sharded.hpp>
class Checkpoints;          // needs #include <unisono/checkpoint/checkpoints.hpp>
struct AnyReducer;          // needs #include <unisono/reducer/any.hpp>
struct HierarchicalReducer; // needs #include <unisono/reducer/hierarchical.hpp>
struct Adasum;              // needs #include <unisono/compression/adasum.hpp>
struct Fp8Wire;             // needs #include <unisono/compression/fp8.hpp>
struct Int8Wire;            // needs #include <unisono/compression/int8.hpp>
struct OneBit;              // needs #include <unisono/compression/one_bit.hpp>
struct PowerSgd;            // needs #include <unisono/compression/power_sgd.hpp>
struct TopK;                // needs #include <unisono/compression/top_k.hpp>
class JsonLinesFile;        // needs #include <unisono/observe/metric_files.hpp>
class CsvFile;              // needs #include <unisono/observe/metric_files.hpp>
class TensorBoardFile;      // needs #include <unisono/observe/tensorboard.hpp>
class Tcp;                  // needs #include <unisono/tcp.hpp>
class Libfabric;            // needs #include <unisono/libfabric.hpp>
class Mpi;                  // needs #include <unisono/mpi.hpp>
class Nccl;                 // needs #include <unisono/nccl.hpp>
class AnyTransport;         // needs #include <unisono/any.hpp>
class Simulated;            // needs #include <unisono/simulate.hpp>
class Simulation;           // needs #include <unisono/simulate.hpp>
template <class... Each>
struct Transports; // needs #include <unisono/transports.hpp>
template <class Model>
class WithStrides; // needs #include <unisono/model/strided.hpp>
template <class World>
class Mesh;   // needs #include <unisono/parallel.hpp>
struct GPipe; // needs #include <unisono/parallel.hpp>

UNISONO_NAMESPACE_END

#pragma once

/// \file
/// Names that the umbrella does not define, each with the header that does. A program that lacks
/// the header gets one error, "incomplete type", and the compiler's note shows the line below with
/// the header's name.

#include "unisono/core/config.hpp"
#include "unisono/core/element.hpp"
#include "unisono/optimizer/optimizer.hpp"

#include <cstddef>

UNISONO_NAMESPACE_BEGIN

struct Reproducible;        // needs #include <unisono/reproducible.hpp>
struct NarrowReproducible;  // needs #include <unisono/reproducible.hpp>
struct GradientSharding;    // needs #include <unisono/sharded.hpp>
struct ParameterSharding;   // needs #include <unisono/sharded.hpp>
class Checkpoints;          // needs #include <unisono/checkpoint.hpp>
struct AnyReducer;          // needs #include <unisono/reducers.hpp>
struct HierarchicalReducer; // needs #include <unisono/reducers.hpp>
struct Adasum;              // needs #include <unisono/compression.hpp>
struct Fp8Wire;             // needs #include <unisono/compression.hpp>
struct Int8Wire;            // needs #include <unisono/compression.hpp>
struct OneBit;              // needs #include <unisono/compression.hpp>
struct PowerSgd;            // needs #include <unisono/compression.hpp>
struct TopK;                // needs #include <unisono/compression.hpp>
struct Asynchronous;        // needs #include <unisono/updates.hpp>
struct BoundedStaleness;    // needs #include <unisono/updates.hpp>
struct BackupWorkers;       // needs #include <unisono/updates.hpp>
struct DelayCompensated;    // needs #include <unisono/updates.hpp>
struct Hogwild;             // needs #include <unisono/updates.hpp>
struct Gossip;              // needs #include <unisono/updates.hpp>
struct AutomaticReducer;    // needs #include <unisono/automatic.hpp>
struct ReducerCosts;        // needs #include <unisono/automatic.hpp>
struct MasterFit;           // needs #include <unisono/trainers.hpp>
struct MasterReport;        // needs #include <unisono/trainers.hpp>
template <class Half>
    requires(sizeof(Half) == 2) && floating_element<Half>
struct CastWire; // needs #include <unisono/compression.hpp>
using Bf16Wire = CastWire<bfloat16>;
using Fp16Wire = CastWire<float16>;
template <optimizer_policy Outer>
struct StreamingDiloco; // needs #include <unisono/updates.hpp>
template <class World, class Model, class T, class Label, class... Given>
class DataParallel; // needs #include <unisono/trainers.hpp>
template <class World, class Model, class T, class Label, class Loss, class... Given>
class MasterLossDataParallel; // needs #include <unisono/trainers.hpp>
template <class T>
class UnitParameters; // needs #include <unisono/sharded.hpp>
template <class M>
class MasterWeights; // needs #include <unisono/master_weights.hpp>
class F1Metric;      // needs #include <unisono/observe.hpp>
class AucMetric;     // needs #include <unisono/observe.hpp>
template <std::size_t Bins>
class BinnedAucMetric; // needs #include <unisono/observe.hpp>

class JsonLinesFile;   // needs #include <unisono/observe.hpp>
class CsvFile;         // needs #include <unisono/observe.hpp>
class TensorBoardFile; // needs #include <unisono/observe.hpp>
class Tcp;             // needs #include <unisono/tcp.hpp>
class Libfabric;       // needs #include <unisono/libfabric.hpp>
class Mpi;             // needs #include <unisono/mpi.hpp>
class Nccl;            // needs #include <unisono/nccl.hpp>
class AnyTransport;    // needs #include <unisono/any.hpp>
class AnyGroup;        // needs #include <unisono/any_group.hpp>
class Simulated;       // needs #include <unisono/simulate.hpp>
class Simulation;      // needs #include <unisono/simulate.hpp>
template <class... Each>
struct Transports; // needs #include <unisono/transports.hpp>
template <class Model>
class WithStrides; // needs #include <unisono/model/strided.hpp>
template <class World>
class Mesh;   // needs #include <unisono/parallel.hpp>
struct GPipe; // needs #include <unisono/parallel.hpp>

UNISONO_NAMESPACE_END

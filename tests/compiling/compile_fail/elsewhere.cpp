// Names that the umbrella only declares: the error's note has the line with their header.
#include "unisono/elsewhere.hpp"

namespace un = unisono;

struct World {};
struct Model {};
struct Batch {};

void use(Model& model, World& world, Batch batch, const un::UnitParameters<float>& unit) {
    static_cast<void>(model);
    static_cast<void>(world);
    static_cast<void>(batch);
    static_cast<void>(unit);

// case: costs
// expect: struct ReducerCosts; // needs #include <unisono/automatic.hpp>
#ifdef CASE_costs
    static_cast<void>(un::ReducerCosts{});
#endif

// case: a_report
// expect: struct MasterReport; // needs #include <unisono/trainers.hpp>
#ifdef CASE_a_report
    static_cast<void>(un::MasterReport{});
#endif

// case: a_fit
// expect: struct MasterFit; // needs #include <unisono/trainers.hpp>
#ifdef CASE_a_fit
    static_cast<void>(un::MasterFit{.epochs = 2});
#endif

// case: bfloat16
// expect: struct CastWire; // needs #include <unisono/compression.hpp>
#ifdef CASE_bfloat16
    static_cast<void>(un::Bf16Wire{});
#endif

// case: float16
// expect: struct CastWire; // needs #include <unisono/compression.hpp>
#ifdef CASE_float16
    static_cast<void>(un::Fp16Wire{});
#endif

// case: streaming
// expect: struct StreamingDiloco; // needs #include <unisono/updates.hpp>
#ifdef CASE_streaming
    static_cast<void>(un::StreamingDiloco{.steps = 2});
#endif

// case: data_parallel
// expect: class DataParallel; // needs #include <unisono/trainers.hpp>
#ifdef CASE_data_parallel
    un::DataParallel parallel{world, model, batch};
#endif

// case: loss_of_the_master
// expect: class MasterLossDataParallel; // needs #include <unisono/trainers.hpp>
#ifdef CASE_loss_of_the_master
    un::MasterLossDataParallel parallel{world, model, batch};
#endif

// case: a_unit
// expect: class UnitParameters; // needs #include <unisono/sharded.hpp>
#ifdef CASE_a_unit
    static_cast<void>(unit.span());
#endif

// case: bins
// expect: class BinnedAucMetric; // needs #include <unisono/observe.hpp>
#ifdef CASE_bins
    static_cast<void>(un::BinnedAucMetric<64>{});
#endif
}

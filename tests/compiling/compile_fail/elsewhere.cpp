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

#ifdef CASE_costs
    // expect: struct ReducerCosts; // needs #include <unisono/automatic.hpp>
    static_cast<void>(un::ReducerCosts{});
#endif

#ifdef CASE_a_report
    // expect: struct MasterReport; // needs #include <unisono/trainers.hpp>
    static_cast<void>(un::MasterReport{});
#endif

#ifdef CASE_a_fit
    // expect: struct MasterFit; // needs #include <unisono/trainers.hpp>
    static_cast<void>(un::MasterFit{.epochs = 2});
#endif

#ifdef CASE_bfloat16
    // expect: struct CastWire; // needs #include <unisono/compression.hpp>
    static_cast<void>(un::Bf16Wire{});
#endif

#ifdef CASE_float16
    // expect: struct CastWire; // needs #include <unisono/compression.hpp>
    static_cast<void>(un::Fp16Wire{});
#endif

#ifdef CASE_streaming
    // expect: struct StreamingDiloco; // needs #include <unisono/updates.hpp>
    static_cast<void>(un::StreamingDiloco{.steps = 2});
#endif

#ifdef CASE_data_parallel
    // expect: class DataParallel; // needs #include <unisono/trainers.hpp>
    un::DataParallel parallel{world, model, batch};
#endif

#ifdef CASE_loss_of_the_master
    // expect: class MasterLossDataParallel; // needs #include <unisono/trainers.hpp>
    un::MasterLossDataParallel parallel{world, model, batch};
#endif

#ifdef CASE_a_unit
    // expect: class UnitParameters; // needs #include <unisono/sharded.hpp>
    static_cast<void>(unit.span());
#endif

#ifdef CASE_bins
    // expect: class BinnedAucMetric; // needs #include <unisono/observe.hpp>
    static_cast<void>(un::BinnedAucMetric<64>{});
#endif
}

// A model in units whose gradients, or parameters too, are spread over devices has the bits of the
// same training on the host.
#include "on_device.hpp"

#include "extensions/sharding/network.hpp"
#include "support/folder.hpp"

#include <unisono/extensions/checkpoint/checkpoints.hpp>
#include <unisono/extensions/compression/cast.hpp>
#include <unisono/guard/clipping.hpp>
#include <unisono/guard/loss_scaling.hpp>
#include <unisono/optimizer/adam.hpp>
#include <unisono/reducer/scheduled.hpp>
#include <unisono/reproducible.hpp>
#include <unisono/sharded.hpp>

#include <atomic>
#include <cstddef>
#include <cstring>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace un = unisono;

namespace {

using Layers = unisono_test::Layers;
using Rows = un::RowBatch<float, float>;

/// The network of the host, whose arithmetic stands for kernels on units of a device. Its stream
/// reads a unit again after the model has released it, and nothing may have written there before.
class UnitsOnDevice : private un::detail::UnitKeeper<float> {
public:
    using Element = float;
    using Pass = un::DeviceUnitPass<float>;

    UnitsOnDevice() : stream_(un::detail::CudaStream::make()) {}
    ~UnitsOnDevice() { cudaStreamSynchronize(stream_.get()); }

    [[nodiscard]] cudaStream_t stream() const { return stream_.get(); }
    [[nodiscard]] std::vector<std::size_t> units() const { return here_.units(); }
    [[nodiscard]] std::vector<std::string> parameter_names() const { return here_.parameter_names(); }
    void initialise(std::size_t unit, un::DeviceSpan<float> values) {
        std::vector<float> made(values.size());
        here_.initialise(unit, made);
        test::enqueue_write(stream_.get(), values, made);
    }
    double operator()(const Rows& batch, Pass& pass) {
        return with(pass, [&](un::UnitPass<float>& inner) { return here_(batch, inner); });
    }
    void evaluate(const Rows& batch, Pass& pass, un::MeanMetric& loss) {
        with(pass, [&](un::UnitPass<float>& inner) { return here_.evaluate(batch, inner, loss), 0.0; });
    }
    /// The number of units that were written while a kernel still had to read them.
    [[nodiscard]] int spoilt() const {
        cudaStreamSynchronize(stream_.get());
        return spoilt_;
    }

private:
    template <class Run>
    double with(Pass& pass, const Run& run) {
        un::UnitPass<float> inner(pass.facts(), *this);
        outer_ = &pass;
        inner_ = &inner;
        const double found = run(inner);
        tell();
        return found;
    }
    void tell() {
        outer_->count_tokens(inner_->tokens() - outer_->tokens());
        if (inner_->asked_for_scale()) static_cast<void>(outer_->loss_scale());
    }

    std::span<const float> acquire(std::size_t unit) override {
        held_.emplace(outer_->parameters(unit));
        cudaStreamSynchronize(stream_.get());
        values_ = test::read_device(un::DeviceSpan<const float>(held_->data(), held_->size()));
        return values_;
    }
    void release() noexcept override {
        test::enqueue_compare(stream_.get(), un::DeviceSpan<const float>(held_->data(), held_->size()), values_,
                              spoilt_);
        held_.reset();
    }
    std::span<float> gradient(std::size_t unit) override {
        tell();
        to_ = outer_->gradient(unit);
        slopes_.assign(to_.size(), 0.0f);
        return slopes_;
    }
    void complete(std::size_t unit) override {
        test::enqueue_add(stream_.get(), to_, slopes_);
        outer_->ready(unit);
    }

    Layers here_;
    un::detail::CudaStream stream_;
    Pass* outer_ = nullptr;
    un::UnitPass<float>* inner_ = nullptr;
    std::optional<un::DeviceUnitParameters<float>> held_;
    un::DeviceSpan<float> to_;
    std::vector<float> values_, slopes_;
    std::atomic<int> spoilt_ = 0;
};
static_assert(un::unit_model_on_device<UnitsOnDevice> && !un::unit_model_on_device<Layers>);

/// How a training uses checkpoints: it resumes from the folder, or saves there after its first
/// epoch.
struct Saved {
    std::string folder;
    bool resumes = false;
};

struct Told {
    std::vector<float> held; ///< the parameters that this rank holds, and their positions
    std::vector<std::size_t> at;
    un::UpdateReport last, bad;
    double distance = 0;
    int spoilt = 0;
    std::size_t to_host = 0, to_device = 0; ///< bytes of all ranks' updates; on the first rank
    std::size_t updates = 0;
};

template <class Transport, bool Saves = false, class... Policies>
std::vector<Told> trained(int ranks, [[maybe_unused]] const Saved& saved, const Policies&... policies) {
    std::vector<Told> told(static_cast<std::size_t>(ranks));
    const std::vector<float> values = un::torch_rand(3, 23 * Layers::inputs), labels = un::torch_rand(4, 23);
    un::run<Transport>(ranks, [&](auto& world) {
        Told& mine = told[static_cast<std::size_t>(world.rank())];
        const un::RowData data(values, Layers::inputs, labels);
        const auto with = [&](auto& model) {
            un::Trainer trainer{world,
                                model,
                                un::DistributedSampler{.seed = 3},
                                un::Accumulate{.steps = 2},
                                un::LossScaling{.initial = 8, .growth_interval = 3},
                                un::Adam{.learning_rate = 0.02},
                                policies...};
            if constexpr (Saves) {
                un::Checkpoints checkpoints(saved.folder);
                if (saved.resumes && !checkpoints.resume(trainer)) throw std::runtime_error("nothing to resume from");
                if (!saved.resumes) {
                    trainer.fit(data, {.epochs = 1, .batch_size = 2, .progress = false});
                    checkpoints.save(trainer);
                }
            }
            un::barrier(world);
            const auto before = test::crossed_the_bus();
            un::barrier(world);
            trainer.fit(data, {.epochs = Saves ? 2 : 3, .batch_size = 2, .progress = false},
                        [&](const un::UpdateReport& report) {
                            mine.last = report;
                            ++mine.updates;
                        });
            un::barrier(world);
            if (world.rank() == 0) {
                mine.to_host = test::crossed_the_bus().bytes_to_host - before.bytes_to_host;
                mine.to_device = test::crossed_the_bus().bytes_to_device - before.bytes_to_device;
            }
            un::barrier(world);
            trainer.verify_replicas();
#ifdef __CUDACC__ // nvcc 13.0 does not find the model's own `evaluate` by itself
            const auto judge = [](auto& of, const Rows& batch, auto& pass, un::MeanMetric& loss) {
                of.evaluate(batch, pass, loss);
            };
            const auto [distance] = trainer.evaluate(data, {.batch_size = 3}, judge, un::MeanMetric{});
#else
            const auto [distance] = trainer.evaluate(data, {.batch_size = 3}, un::MeanMetric{});
#endif
            mine.distance = distance.value();
            // Only on the last rank. No rank makes the update.
            un::RowBatch<float, float> batch = data.batch(std::vector<std::size_t>{0, 1});
            if (world.rank() + 1 == world.size()) batch.labels[0] = std::numeric_limits<float>::infinity();
            mine.bad = trainer.step(batch);
            if (trainer.describe().find("sharding") == std::string::npos) throw std::runtime_error(trainer.describe());
            trainer.visit_parameters({0, trainer.layout().count()}, [&](std::size_t flat, std::span<const float> part) {
                mine.at.push_back(flat);
                mine.held.insert(mine.held.end(), part.begin(), part.end());
            });
        };
        if constexpr (un::streaming_transport<Transport>) {
            UnitsOnDevice model;
            with(model);
            mine.spoilt = model.spoilt();
        } else {
            Layers model;
            with(model);
        }
    });
    return told;
}

/// `guarded`: only the guard's result crosses the bus.
template <bool Saves = false, class... Policies>
void same_units(bool guarded, const Policies&... policies) {
    const test::Clean clean;
#ifdef UNISONO_TEST_ON_GPU // transports sum more ranks in orders of their own
    const auto worlds = {1, 2};
#else
    const auto worlds = {1, 2, 4};
#endif
    for (const int ranks : worlds) {
        const unisono_test::Folder on_host, on_device;
        const std::vector<Told> host = trained<un::InProcess, Saves>(ranks, {on_host.path()}, policies...);
        const std::vector<Told> device = trained<test::Transport, Saves>(ranks, {on_device.path()}, policies...);
        BOOST_TEST(host[0].last.number > 2u);
        if constexpr (Saves) {
            const std::vector<Told> host_goes_on =
                trained<un::InProcess, true>(ranks, {on_device.path(), true}, policies...);
            const std::vector<Told> device_goes_on =
                trained<test::Transport, true>(ranks, {on_host.path(), true}, policies...);
            for (std::size_t rank = 0; rank < host.size(); ++rank) {
                BOOST_TEST((host_goes_on[rank].held == host[rank].held));
                BOOST_TEST((device_goes_on[rank].held == host[rank].held));
            }
        }
        for (std::size_t rank = 0; rank < host.size(); ++rank) BOOST_TEST_CONTEXT("rank " << rank << " of " << ranks) {
                BOOST_TEST(!host[rank].held.empty());
                BOOST_TEST((device[rank].held == host[rank].held));
                BOOST_TEST((device[rank].at == host[rank].at));
                BOOST_TEST(device[rank].last.loss == host[rank].last.loss);
                BOOST_TEST(device[rank].last.loss_scale == host[rank].last.loss_scale);
                BOOST_TEST(device[rank].last.gradient_norm == host[rank].last.gradient_norm);
                BOOST_TEST(device[rank].distance == host[rank].distance);
                for (const un::UpdateReport* bad : {&host[rank].bad, &device[rank].bad}) {
                    BOOST_TEST(!bad->committed);
                    BOOST_TEST(bad->offender_rank == ranks - 1);
                    BOOST_TEST(bad->offender_parameter == 0);
                }
                BOOST_TEST(device[rank].spoilt == 0);
                BOOST_TEST(device[rank].to_device == 0u);
            }
        // The guard's result.
        if (guarded && test::bytes_are_counted) BOOST_TEST(device[0].to_host == 16 * host.size() * device[0].updates);
    }
}

} // namespace

BOOST_AUTO_TEST_SUITE(device_units)

BOOST_AUTO_TEST_CASE(gradients_that_are_sharded) { // and checkpoints, in both directions
    same_units<true>(true, un::GradientSharding{}, un::ClipByValue{.limit = 0.1});
}

BOOST_AUTO_TEST_CASE(parameters_that_are_sharded) {
    same_units(false, un::ParameterSharding{}, un::Reproducible{}, un::ClipByNorm{.max_norm = 0.3});
}

BOOST_AUTO_TEST_CASE(sums_in_16_bits_slice_by_slice) {
    same_units(true, un::ParameterSharding{}, un::TreeReducer{}, un::Bf16Wire{.error_feedback = false});
}

BOOST_AUTO_TEST_SUITE_END()

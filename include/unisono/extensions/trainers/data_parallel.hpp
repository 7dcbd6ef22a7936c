#pragma once

/// \file
/// PyTorch's DataParallel as a composition: one master has the data, the others compute for it.
///
/// In each update rank 0 cuts the global batch into contiguous parts of ceil(rows / ranks) and
/// scatters them. All ranks run the model on their part. The gradients go to rank 0, which runs the
/// optimizer and broadcasts the parameters. Two variants:
/// - `DataParallel`: each rank computes the loss of its part. Traffic of the master per update:
///   inputs and labels of p - 1 ranks, and their gradients and parameters.
/// - `MasterLossDataParallel`: the master computes the loss of all outputs. Traffic of the master:
///   as above without labels, and also outputs and their gradients.
///
/// Both exist for comparison with `Trainer`, which needs no master. `report()` counts the bytes
/// that pass through the master, and the memory that the master needs. Source:
/// torch.nn.DataParallel.

#include "unisono/collective/rooted.hpp"
#include "unisono/core/standard.hpp"
#include "unisono/core/text.hpp"
#include "unisono/model/with_loss.hpp"
#include "unisono/reducer/parameter_server.hpp"
#include "unisono/sampler/samplers.hpp"
#include "unisono/trainer/trainer.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN

/// The traffic of a master: bytes of payload between rank 0 and another rank, whichever schedule
/// carries them.
struct MasterReport {
    std::uint64_t updates = 0;
    std::uint64_t input_bytes = 0;     ///< inputs (and labels) sent
    std::uint64_t output_bytes = 0;    ///< outputs received and their gradients sent; 0 if replicas compute their loss
    std::uint64_t gradient_bytes = 0;  ///< gradients received
    std::uint64_t parameter_bytes = 0; ///< parameters sent
    std::uint64_t peak_bytes = 0;      ///< memory for batches, outputs and output gradients, beside what every rank has

    [[nodiscard]] std::uint64_t total_bytes() const {
        return input_bytes + output_bytes + gradient_bytes + parameter_bytes;
    }
    [[nodiscard]] std::string describe() const {
        return concat({"through the master in ", count_text(updates), " updates: ", bytes_text(total_bytes()),
                       " (inputs ", bytes_text(input_bytes), ", outputs ", bytes_text(output_bytes), ", gradients ",
                       bytes_text(gradient_bytes), ", parameters ", bytes_text(parameter_bytes),
                       "); its extra memory at most ", bytes_text(peak_bytes)});
    }
};

/// Options of a training with a master, as of a PyTorch DataLoader for DataParallel.
struct MasterFit {
    std::int64_t epochs = 1;
    std::int64_t batch_size = 1; ///< over all ranks; the last batch of an epoch may be shorter
    ScatterSampler sampler = {.shuffle = false};

    friend bool operator==(const MasterFit&, const MasterFit&) = default;
};

namespace detail {

/// On the master, trains for all epochs. On the other ranks, computes the received parts until the
/// master ends. Returns the number of updates.
template <class Parallel, class Data>
std::uint64_t fit_from_master(Parallel& parallel, const Data& data, const MasterFit& options) {
    auto& world = parallel.trainer().world();
    std::uint64_t updates = 0;
    if (world.rank() != 0) {
        while (parallel.step()) ++updates;
        return updates;
    }
    const auto telling = [&](auto&& body) { return telling_all(world, "DataParallel::fit", body); };
    const SamplerShape whole = telling([&] {
        if (options.epochs < 0) refuse_input({"MasterFit.epochs is ", options.epochs, "; expected 0 or more"});
        return shape_of_rank(options.sampler, static_cast<std::int64_t>(data.size()), options.batch_size, 1, 0);
    });
    for (std::int64_t epoch = 0; epoch < options.epochs; ++epoch) {
        auto stream = telling([&] { return options.sampler.stream(whole, Epoch{epoch}); });
        for (; !stream.done(); ++updates) {
            const auto batch = telling([&] { return data.batch(stream.next().samples); });
            telling([&] {
                if (batch.rows() == 0) refuse_input("the data gave an empty batch; expected rows");
            });
            parallel.step(batch);
        }
    }
    parallel.step(); // an empty batch ends the training
    return updates;
}

/// Turns a RowBatch on rank 0 into one part per rank.
template <class T, class Label>
class RowScatter {
public:
    /// The number of rows in the part of rank `rank`. Rows are cut as by torch.chunk.
    static std::size_t part_rows(std::size_t rows, std::size_t ranks, std::size_t rank) {
        const std::size_t each = (rows + ranks - 1) / ranks;
        const std::size_t first = std::min(rows, rank * each);
        return std::min(each, rows - first);
    }

    /// Scatters the next batch. Returns false if rank 0 has no more. If `with_labels`, scatters
    /// labels as well; otherwise they stay on rank 0.
    template <class World>
    bool scatter_rows(World& world, const RowBatch<T, Label>& whole, bool with_labels, MasterReport& report) {
        const bool master = world.rank() == 0;
        std::array<std::uint64_t, 3> head = {
            whole.rows(), whole.width, with_labels ? whole.labels.size() / std::max<std::size_t>(1, whole.rows()) : 0};
        broadcast(world, head, 0);
        rows = head[0];
        if (rows == 0) return false;
        const auto ranks = static_cast<std::size_t>(world.size());
        counts(row_counts_, ranks, 1);
        counts(value_counts_, ranks, head[1]);
        counts(label_counts_, ranks, head[2]);
        const auto me = static_cast<std::size_t>(world.rank());
        part.width = head[1];
        part.values.resize(value_counts_[me]);
        part.labels.resize(label_counts_[me]);
        scatter(world, whole.values, part.values, 0, value_counts_);
        if (head[2] != 0) scatter(world, whole.labels, part.labels, 0, label_counts_);
        if (master) {
            report.input_bytes += (whole.values.size() - part.values.size()) * sizeof(T);
            if (head[2] != 0) report.input_bytes += (whole.labels.size() - part.labels.size()) * sizeof(Label);
            batch_bytes = (whole.values.size() - part.values.size()) * sizeof(T) +
                          (whole.labels.size() - (head[2] != 0 ? part.labels.size() : 0)) * sizeof(Label);
        }
        return true;
    }

    /// Fills `list` with the number of elements of each rank's part, at `width` elements per row.
    void counts(std::vector<std::size_t>& list, std::size_t ranks, std::size_t width) const {
        list.resize(ranks);
        for (std::size_t r = 0; r < ranks; ++r) list[r] = part_rows(rows, ranks, r) * width;
    }

    RowBatch<T, Label> part = {};
    std::size_t rows = 0;        ///< rows of the whole batch
    std::size_t batch_bytes = 0; ///< bytes of the whole batch beyond the master's own part

private:
    std::vector<std::size_t> row_counts_, value_counts_, label_counts_;
};

/// The whole batch has one loss: each part's gradient is already its share of it.
struct PartsOfOneLoss {
    double divisor = 1; ///< 1 on the master, 0 elsewhere

    static constexpr bool differs_between_ranks = true;
    static constexpr std::string_view name = "parts of one loss";
    static constexpr Family family = Family::weighing;
    static constexpr bool needs_samples = false;
    static constexpr bool needs_tokens = false;
    friend bool operator==(const PartsOfOneLoss&, const PartsOfOneLoss&) = default;
    [[nodiscard]] Share share(const MicroBatchFacts&) const { return {1, divisor}; }
};

/// Runs a forward pass, sends outputs to the master, computes the loss there, sends output
/// gradients back, and runs a backward pass.
template <class World, class Model, class Loss, class T, class Label>
class MasterLossModel {
public:
    MasterLossModel(World& world, Model& wrapped, Loss loss, RowScatter<T, Label>& rows, MasterReport& report)
        : world_(&world), model_(&wrapped), loss_(std::move(loss)), rows_(&rows), report_(&report) {}

    decltype(auto) parameters() { return model_->parameters(); }
    decltype(auto) gradients() { return model_->gradients(); }

    /// The whole batch, on the master.
    void set_whole(const RowBatch<T, Label>& whole) { whole_ = &whole; }

    double operator()(const RowBatch<T, Label>& part, Pass&) {
        using E = parameter_element_t<Model>;
        const bool idle = part.rows() == 0;
        const auto outputs = idle ? std::span<const E>() : std::span<const E>(model_->forward(part));
        std::array<std::uint64_t, 1> width = {idle ? 0 : outputs.size() / part.rows()};
        broadcast(*world_, width, 0); // the master always has rows
        if (!idle && outputs.size() != width[0] * part.rows())
            refuse_input({"the model gave ", outputs.size(), " outputs for ", part.rows(), " rows; expected ",
                          width[0] * part.rows()});
        rows_->counts(counts_, static_cast<std::size_t>(world_->size()), width[0]);
        const bool master = world_->rank() == 0;
        all_outputs_.resize(master ? rows_->rows * width[0] : 0);
        all_gradients_.assign(all_outputs_.size(), E{});
        own_gradients_.resize(outputs.size());
        gather(*world_, outputs, all_outputs_, 0, counts_);
        double loss = 0;
        if (master) {
            loss = static_cast<double>(loss_(std::span<const E>(all_outputs_), *whole_, std::span<E>(all_gradients_)));
            const std::size_t others = all_outputs_.size() - outputs.size();
            report_->output_bytes += 2 * others * sizeof(E);
            report_->peak_bytes =
                std::max<std::uint64_t>(report_->peak_bytes, rows_->batch_bytes + 2 * all_outputs_.size() * sizeof(E));
        }
        scatter(*world_, all_gradients_, own_gradients_, 0, counts_);
        if (!idle) model_->backward(part, std::span<const E>(own_gradients_));
        return loss;
    }

private:
    World* world_;
    Model* model_;
    Loss loss_;
    RowScatter<T, Label>* rows_;
    MasterReport* report_;
    const RowBatch<T, Label>* whole_ = nullptr;
    std::vector<std::size_t> counts_;
    std::vector<parameter_element_t<Model>> all_outputs_, all_gradients_, own_gradients_;
};

/// Bytes of gradients and parameters in one update.
template <class World, class Trainer>
void count_update(const World& world, const Trainer& trainer, MasterReport& report) {
    if (world.rank() != 0) return;
    const std::uint64_t bytes = trainer.layout().bytes() * static_cast<std::uint64_t>(world.size() - 1);
    ++report.updates;
    report.gradient_bytes += bytes;
    report.parameter_bytes += bytes;
}

} // namespace detail

/// The master scatters inputs and labels, and replicas compute their loss. Weighted by samples, the
/// update is that of one rank on the whole batch. Takes policies as Trainer does, except sampler,
/// reducer and weighing.
template <class World, class Model, class T, class Label, class... Given>
class DataParallel {
public:
    using Batch = RowBatch<T, Label>;

    /// An empty batch names the type of batches:
    /// `DataParallel dp{world, model, RowBatch<float>{}, Sgd{}}`.
    DataParallel(World& world, Model& trained, const Batch&, Given... given)
        : trainer_(world, trained, ParameterServerReducer{.servers = 1}, BySamples{}, std::move(given)...) {}

    /// One update. Only rank 0's batch is used; an empty one ends the training: no update, and
    /// false on every rank. Collective. `last()` reports the update.
    bool step(const Batch& whole = {}) {
        auto& world = trainer_.world();
        const auto inside = trainer_.state().acting();
        const bool more =
            detail::telling_all(world, "DataParallel", [&] { return rows_.scatter_rows(world, whole, true, report_); });
        if (!more) return false;
        if (world.rank() == 0) report_.peak_bytes = std::max<std::uint64_t>(report_.peak_bytes, rows_.batch_bytes);
        last_ = rows_.part.rows() != 0 ? trainer_.step(rows_.part) : trainer_.step();
        detail::count_update(world, trainer_, report_);
        return true;
    }

    /// Trains on rank 0's data; those of other ranks are not used. Collective; ends on every rank
    /// with the last update. Returns the number of updates.
    /// Errors, on every rank: bad_input (sizes, no data); what the data or the model throw.
    template <class Data>
    std::uint64_t fit(const Data& data, const MasterFit& options) {
        return detail::fit_from_master(*this, data, options);
    }

    [[nodiscard]] const UpdateReport& last() const { return last_; }
    [[nodiscard]] const MasterReport& report() const { return report_; } ///< on rank 0; zeros elsewhere
    [[nodiscard]] auto& trainer() { return trainer_; }

private:
    Trainer<World, Model, ParameterServerReducer, BySamples, Given...> trainer_;
    detail::RowScatter<T, Label> rows_;
    MasterReport report_;
    UpdateReport last_;
};

template <class World, class Model, class T, class Label, class... Given>
DataParallel(World&, Model&, RowBatch<T, Label>, Given...) -> DataParallel<World, Model, T, Label, Given...>;

/// The master keeps the labels and computes the loss on all outputs: loss(outputs, whole batch,
/// output_gradients), as for WithLoss. The model has forward and backward; `forward` is called on
/// every rank that has rows.
template <class World, class Model, class T, class Label, class Loss, class... Given>
class MasterLossDataParallel {
    using Split = detail::MasterLossModel<World, Model, Loss, T, Label>;

public:
    using Batch = RowBatch<T, Label>;
    static_assert(
        two_way_model<Model, Batch>,
        "unisono::MasterLossDataParallel: found a model without forward(batch) and backward(batch, output_gradients). "
        "Required: both. Why: the loss is computed on another rank, between the two.");

    MasterLossDataParallel(World& world, Model& trained, const Batch&, Loss loss, Given... given)
        : split_(world, trained, std::move(loss), rows_, report_),
          trainer_(world, split_, ParameterServerReducer{.servers = 1},
                   detail::PartsOfOneLoss{.divisor = world.rank() == 0 ? 1.0 : 0.0}, std::move(given)...) {}
    MasterLossDataParallel(const MasterLossDataParallel&) = delete;
    MasterLossDataParallel& operator=(const MasterLossDataParallel&) = delete;

    /// As DataParallel::step.
    bool step(const Batch& whole = {}) {
        auto& world = trainer_.world();
        const auto inside = trainer_.state().acting();
        const bool more = detail::telling_all(world, "MasterLossDataParallel",
                                              [&] { return rows_.scatter_rows(world, whole, false, report_); });
        if (!more) return false;
        split_.set_whole(whole);
        last_ = trainer_.step(rows_.part); // also without rows, since the rank takes part in the gather
        detail::count_update(world, trainer_, report_);
        return true;
    }

    /// As DataParallel::fit.
    template <class Data>
    std::uint64_t fit(const Data& data, const MasterFit& options) {
        return detail::fit_from_master(*this, data, options);
    }

    [[nodiscard]] const UpdateReport& last() const { return last_; }
    [[nodiscard]] const MasterReport& report() const { return report_; } ///< on rank 0; zeros elsewhere
    [[nodiscard]] auto& trainer() { return trainer_; }

private:
    detail::RowScatter<T, Label> rows_;
    MasterReport report_;
    Split split_;
    Trainer<World, Split, ParameterServerReducer, detail::PartsOfOneLoss, Given...> trainer_;
    UpdateReport last_;
};

template <class World, class Model, class T, class Label, class Loss, class... Given>
MasterLossDataParallel(World&, Model&, RowBatch<T, Label>, Loss, Given...)
    -> MasterLossDataParallel<World, Model, T, Label, Loss, Given...>;

UNISONO_NAMESPACE_END

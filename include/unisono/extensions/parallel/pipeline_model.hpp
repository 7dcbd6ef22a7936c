#pragma once

/// \file
/// A model whose layers are distributed over ranks. It is a model like others (model/model.hpp):
/// its call trains on one batch, which is cut into micro-batches that go through the pipeline. So a
/// `Trainer` along another axis makes it data-parallel.
///
///     un::Mesh mesh{world, {{"data", 2}, {"pipeline", 4}}};
///     un::PipelineModel model{mesh.axis("pipeline"), std::move(layers), loss,
///                             un::OneForwardOneBackward{}, {.micro_batches = 16}};
///     un::Trainer trainer{mesh.axis("data"), model, un::StateSharding{}, un::AdamW{}};
///     trainer.fit(data, {.batch_size = 64, .progress = world.rank() == 0});

#include "unisono/arithmetic/accumulate.hpp"
#include "unisono/collective/all_reduce.hpp"
#include "unisono/collective/rooted.hpp"
#include "unisono/extensions/parallel/agreement.hpp"
#include "unisono/extensions/parallel/pipeline_chunk.hpp"
#include "unisono/extensions/parallel/pipeline_options.hpp"
#include "unisono/extensions/parallel/pipeline_schedules.hpp"
#include "unisono/extensions/parallel/pipeline_timeline.hpp"
#include "unisono/schedule/families.hpp"
#include "unisono/trainer/failure.hpp"

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN

/// The stage of a model on this rank of `world`, which is the pipeline's group; rank s is stage s.
///
/// `loss(outputs, micro_batch, output_gradients)` returns the mean loss of a micro-batch (RowSlice,
/// or the type that the batch's `slice` returns) and writes its gradient, as for `WithLoss`. It is
/// called on the last stage. All ranks get the same batches.
///
/// Determinism: every schedule adds gradients in the order of micro-batches, so any number of
/// stages gives the bits of one stage. Memory: parameters and gradients of this rank's layers;
/// activations as the schedule says. Messages: two per micro-batch and part.
/// Errors: bad_input (more parts than layers, a placement that does not match, a batch without
/// samples or of another width); mismatch if ranks differ in layers, schedule or options. An
/// exception of a layer on one rank is `aborted` on all others, with that rank's number.
template <class World, floating_element T, class Loss, pipeline_schedule Schedule = OneForwardOneBackward>
class PipelineModel {
public:
    static constexpr GradientKind gradient_kind = GradientKind::mean;

    PipelineModel(World& world, Layers<T> layers, Loss loss, Schedule schedule = {}, PipelineOptions options = {})
        : world_(&world), layers_(std::move(layers)), loss_(std::move(loss)), schedule_(schedule),
          options_(std::move(options)), messages_(world), parts_group_(&world) {
        detail::telling_all(world, "PipelineModel", [&] { build(); });
    }
    PipelineModel(const PipelineModel&) = delete;
    PipelineModel& operator=(const PipelineModel&) = delete;

    // --- a model ---

    [[nodiscard]] std::span<const std::span<T>> parameters() { return given_; }
    [[nodiscard]] std::span<const std::span<T>> gradients() { return given_gradients_; }
    /// "layer 3", with the layer's number in the whole model.
    [[nodiscard]] const std::vector<std::string>& parameter_names() const { return names_; }
    /// For checkpoints: names and numbers of elements of all parameters of the whole model, on
    /// every rank. `places()`: the numbers in it of this rank's parameters.
    [[nodiscard]] auto whole_parameters() const { return detail::names_and_elements(layers_); }
    [[nodiscard]] std::span<const std::size_t> places() const { return places_; }

    /// Adds the gradients of this rank's layers. Returns the mean loss of the whole batch, on every
    /// rank.
    template <class Batch>
    double operator()(const Batch& batch, Pass& pass) {
        return detail::telling_all(*world_, "PipelineModel", [&] {
            const double scale = pass.loss_scale();
            if constexpr (requires { batch.tokens(); }) pass.count_tokens(static_cast<double>(batch.tokens()));
            const detail::MicroBatches cut = cut_batch(batch);
            prepare(cut, true);
            double loss = 0;
            for (std::size_t k = 0; k < actions_.size(); ++k) train(k, batch, cut, pass, scale, loss);
            messages_.await_all();
            std::array<double, 1> all = {loss};
            if (stages() > 1) broadcast(*world_, all, stages() - 1);
            return all[0];
        });
    }

    /// Returns the outputs of all samples of the batch, on every rank, valid until the next call.
    /// Collective. Cost: a forward pass of each micro-batch, and a broadcast of the outputs.
    template <class Batch>
    [[nodiscard]] std::span<const T> predict(const Batch& batch) {
        return detail::telling_all(*world_, "predict", [&] {
            const detail::MicroBatches cut = cut_batch(batch);
            prepare(cut, false);
            outputs_.resize(cut.samples * layers_[layers_.size() - 1].outputs);
            for (std::size_t k = 0; k < forward_.size(); ++k) ahead(forward_, k, batch, cut, nullptr);
            messages_.await_all();
            if (stages() > 1) broadcast(*world_, outputs_, stages() - 1);
            return std::span<const T>(outputs_);
        });
    }

    // --- for trainers ---

    /// Sums numbers over all ranks that have a stage of this replica of the model, for decisions
    /// that must be the same on all: the norm of the gradient, and whether it is finite.
    /// Collective. Adds in rank order, so all replicas get the same bits, whichever of their ranks
    /// share a host.
    void sum_over_parts(std::span<double> values) {
        if (spread_ && parts_group_ == world_)
            refuse_input("PipelineModel: layers are spread over another axis, too; expected decide_with(the group of "
                         "all axes), so that its ranks decide together");
        if (parts_group_->size() > 1) all_reduce(*parts_group_, values, Sum{}, DirectSchedule{});
    }
    /// For layers that are themselves distributed along another axis (tensor.hpp): sets the group
    /// of all ranks that have a stage of this replica, `mesh.group({"pipeline", "tensor"})`. The
    /// group must outlive the model.
    void decide_with(World& all_parts) { parts_group_ = &all_parts; }

    // --- this rank's stage ---

    [[nodiscard]] World& world() { return *world_; }
    [[nodiscard]] int stages() const { return world_->size(); }
    [[nodiscard]] const LayerPlacement& placement() const { return options_.placement; }
    [[nodiscard]] const Layers<T>& layers() const { return layers_; }
    [[nodiscard]] PipelineMemory memory() const {
        PipelineMemory found{values_.size() * sizeof(T), slopes_.size() * sizeof(T), 0,
                             work_memory_.size() * sizeof(T)};
        for (const auto& one : chunks_) found.activations += one.bytes();
        return found;
    }
    [[nodiscard]] std::string describe() const {
        return detail::pipeline_text(layers_, options_, Schedule::name, stages());
    }
    /// Inputs per sample of this rank's first chunk.
    [[nodiscard]] std::size_t part_inputs() const { return chunks_[0].inputs(); }
    /// For inference (stream.hpp), in a pipeline with one part per stage: runs this rank's layers.
    /// The outputs are valid until the next call.
    [[nodiscard]] std::span<const T> forward_part(std::span<const T> input, std::size_t samples) {
        if (chunks_.size() != 1)
            refuse_input({"forward_part: found ", chunks_.size(), " chunks per stage, expected 1"});
        chunks_[0].reserve(*world_, samples, 1, false);
        reserve_work(samples);
        chunks_[0].forward(0, samples, input, work_, parameters_of(0), nullptr, 0);
        return chunks_[0].output(0, samples);
    }

private:
    void build() {
        const PipelineShape shape = shape_of(options_.micro_batches);
        refuse_bad_pipeline(shape);
        detail::Fingerprint mine;
        mine.add(Schedule::name).add(schedule_.chunks);
        mine.add(options_.micro_batches).add(std::uint64_t{options_.recompute});
        spread_ = detail::place_layers(options_.placement, layers_, parts_of(shape), mine, world_->world_rank());
        detail::check_placement(options_.placement, parts_of(shape), layers_.size());
        for (const std::size_t count : options_.placement) mine.add(count);
        for (std::size_t l = 0; l < layers_.size(); ++l) {
            const detail::AnyLayer<T>& one = layers_[l];
            mine.add(one.inputs).add(one.outputs).add(one.parameters).add(one.kept);
        }
        detail::agree_on_fingerprint(*world_, "PipelineModel", mine, describe(),
                                     "the same layers, placement, schedule and options");
        std::size_t part = 0, first = 0, count = 0;
        for (const std::size_t of_part : options_.placement) {
            if (part % static_cast<std::size_t>(stages()) == static_cast<std::size_t>(world_->rank())) {
                chunks_.emplace_back(layers_, first, of_part, static_cast<std::uint32_t>(part), options_.recompute);
                for (std::size_t l = first; l < first + of_part; ++l) count += layers_[l].parameters;
            }
            ++part;
            first += of_part;
        }
        values_ = world_->template allocate<T>(count);
        slopes_ = world_->template allocate<T>(count);
        std::size_t at = 0;
        for (const auto& chunk : chunks_) {
            first_of_chunk_.push_back(all_.size());
            for (std::size_t l = 0; l < chunk.layers(); ++l) {
                const std::size_t n = chunk.layer(l).parameters;
                number_.push_back(given_.size());
                all_.push_back({values_.data() + at, n});
                all_gradients_.push_back({slopes_.data() + at, n});
                at += n;
                if (n == 0) continue;
                chunk.layer(l).initialise(all_.back());
                given_.push_back(all_.back());
                given_gradients_.push_back(all_gradients_.back());
                names_.push_back(detail::layer_name(chunk.first_layer() + l));
                places_.push_back(detail::parameters_before(layers_, chunk.first_layer() + l));
            }
        }
        if (given_.empty())
            refuse_input({"PipelineModel: the layers of stage ", world_->rank(),
                          " have no parameters; expected some on every stage (see PipelineOptions::placement)"});
        done_.resize(chunks_.size());
    }

    [[nodiscard]] PipelineShape shape_of(std::uint32_t micro_batches) const {
        return {stages(), world_->rank(), micro_batches, schedule_.chunks};
    }

    template <class Batch>
    detail::MicroBatches cut_batch(const Batch& batch) const {
        const std::size_t samples = samples_of(batch);
        if (samples == 0) refuse_input("PipelineModel: found a batch without samples");
        return {samples, options_.micro_batches};
    }

    /// Prepares the plan for this number of micro-batches, and memory for it.
    void prepare(const detail::MicroBatches& cut, bool training) {
        if (cut.count != planned_) {
            const PipelineShape shape = shape_of(cut.count);
            actions_.clear();
            forward_.clear();
            for_each_action(schedule_, shape, [&](const PipelineAction& one) {
                actions_.push_back(one);
                if (one.step <= PipelineStep::send_activation) forward_.push_back(one);
            });
            held_ = detail::slots_of(shape, actions_);
            planned_ = cut.count;
        }
        training_ = training;
        for (std::size_t c = 0; c < chunks_.size(); ++c) {
            // In a forward pass alone, a chunk's outputs may have to wait until all micro-batches
            // of a group have gone through the chunk before.
            std::size_t slot_count = held_[c];
            if (!training && chunks_.size() > 1)
                slot_count = std::max(slot_count, std::min<std::size_t>(cut.count, static_cast<std::size_t>(stages())));
            chunks_[c].reserve(*world_, cut.largest(), slot_count, training);
            messages_.reserve(c, chunks_[c].slot_count());
            done_[c] = 0;
        }
        reserve_work(cut.largest());
    }
    void reserve_work(std::size_t samples) {
        std::size_t activations = 0, gradients = 0;
        for (const auto& one : chunks_) {
            activations = std::max(activations, one.work_width());
            gradients = std::max(gradients, one.gradient_width());
        }
        samples = std::max(samples, work_samples_);
        if (samples != work_samples_) work_memory_.assign(samples * (activations + 2 * gradients), T{});
        work_samples_ = samples;
        const std::span<T> all(work_memory_);
        work_.activations = all.first(samples * activations);
        work_.gradients = {all.subspan(samples * activations, samples * gradients), all.last(samples * gradients)};
    }

    [[nodiscard]] auto parameters_of(std::size_t chunk) const {
        return [this, first = first_of_chunk_[chunk]](std::size_t l) { return std::span<const T>(all_[first + l]); };
    }
    [[nodiscard]] std::size_t slot_of(const PipelineAction& one) const {
        return one.micro_batch % chunks_[one.chunk].slot_count();
    }
    template <class Batch>
    std::span<const T> input_of(const PipelineAction& one, const Batch& batch, const detail::MicroBatches& cut) {
        auto& chunk = chunks_[one.chunk];
        const std::size_t n = cut.size(one.micro_batch);
        if (chunk.part() != 0) return chunk.input(slot_of(one), n);
        const auto slice = detail::slice_of(batch, cut.first(one.micro_batch), n);
        const std::span<const T> values(slice.values);
        if (values.size() != n * chunk.inputs())
            refuse_input({"PipelineModel: micro-batch ", one.micro_batch, " of ", n, " samples has ", values.size(),
                          " values, expected ", n * chunk.inputs(), ": the first layer has ", chunk.inputs(),
                          " inputs"});
        return values;
    }

    // --- messages ---

    static bool receives(const PipelineAction& one) {
        return one.step == PipelineStep::receive_activation || one.step == PipelineStep::receive_gradient;
    }
    void post(std::size_t k, const PipelineAction& one, const detail::MicroBatches& cut) {
        auto& chunk = chunks_[one.chunk];
        const std::size_t n = cut.size(one.micro_batch);
        if (one.step == PipelineStep::receive_activation)
            messages_.post(k, chunk.input(slot_of(one), n), one.peer, activation_tag(chunk.part()));
        else messages_.post(k, chunk.output_gradient(one.micro_batch, n), one.peer, gradient_tag(chunk.part()));
    }
    void receive(std::size_t k, const PipelineAction& one, const detail::MicroBatches& cut) {
        if (!messages_.posted(k)) post(k, one, cut);
        messages_.arrive();
    }
    /// Starts to receive the next data while this stage computes, if their memory is free.
    void post_next(const std::vector<PipelineAction>& all, std::size_t k, const detail::MicroBatches& cut) {
        if (messages_.posted()) return;
        while (++k < all.size() && !receives(all[k])) {
        }
        if (k == all.size()) return;
        const PipelineAction& one = all[k];
        const bool room = one.step == PipelineStep::receive_gradient ||
                          one.micro_batch < done_[one.chunk] + chunks_[one.chunk].slot_count();
        if (room) post(k, one, cut);
    }

    // --- work ---

    template <class Batch>
    void ahead(const std::vector<PipelineAction>& all, std::size_t k, const Batch& batch,
               const detail::MicroBatches& cut, const Pass* pass) {
        const PipelineAction& one = all[k];
        auto& chunk = chunks_[one.chunk];
        const std::size_t n = cut.size(one.micro_batch), slot = slot_of(one);
        if (one.step == PipelineStep::receive_activation) return receive(k, one, cut);
        if (one.step == PipelineStep::send_activation)
            return messages_.send_activation(one.chunk, slot, chunk.output(slot, n), one.peer,
                                             activation_tag(chunk.part() + 1));
        post_next(all, k, cut);
        messages_.await_activation(one.chunk, slot);
        chunk.forward(slot, n, input_of(one, batch, cut), work_, parameters_of(one.chunk), pass,
                      cut.first(one.micro_batch));
        if (!training_) ++done_[one.chunk];
        const std::span<const T> found = chunk.output(slot, n);
        if (chunk.part() + 1 == options_.placement.size()) {
            if (!training_)
                std::copy(found.begin(), found.end(),
                          outputs_.begin() + static_cast<std::ptrdiff_t>(cut.first(one.micro_batch) * chunk.outputs()));
        } else if (stages() == 1) {
            auto& next = chunks_[one.chunk + 1];
            std::copy(found.begin(), found.end(), next.input(one.micro_batch % next.slot_count(), n).begin());
        }
    }

    template <class Batch>
    void train(std::size_t k, const Batch& batch, const detail::MicroBatches& cut, Pass& pass, double scale,
               double& loss) {
        const PipelineAction& one = actions_[k];
        auto& chunk = chunks_[one.chunk];
        const std::uint32_t i = one.micro_batch;
        const std::size_t n = cut.size(i), slot = slot_of(one);
        if (one.step <= PipelineStep::send_activation) return ahead(actions_, k, batch, cut, &pass);
        if (one.step == PipelineStep::receive_gradient) return receive(k, one, cut);
        if (one.step == PipelineStep::send_gradient)
            return messages_.send_gradient(one.chunk, i, chunk.input_gradient(i, n), one.peer,
                                           gradient_tag(chunk.part() - 1));
        post_next(actions_, k, cut);
        if (chunk.part() + 1 == options_.placement.size()) loss += look_at_loss(chunk, slot, batch, cut, i, scale);
        messages_.await_gradient(one.chunk, i);
        const bool last = i + 1 == cut.count;
        const std::size_t first = first_of_chunk_[one.chunk];
        chunk.backward(
            slot, i, n, input_of(one, batch, cut), work_, parameters_of(one.chunk),
            [&](std::size_t l) { return all_gradients_[first + l]; },
            [&](std::size_t l) {
                if (last && !all_[first + l].empty()) pass.ready(number_[first + l]);
            },
            &pass, cut.first(i));
        ++done_[one.chunk];
        if (stages() == 1 && one.chunk != 0) {
            const std::span<const T> found = chunk.input_gradient(i, n);
            std::copy(found.begin(), found.end(), chunks_[one.chunk - 1].output_gradient(i, n).begin());
        }
    }

    /// Returns the micro-batch's share of the batch's mean loss, and writes its gradient with
    /// respect to the outputs.
    template <class Batch>
    double look_at_loss(detail::PipelineChunk<T>& chunk, std::size_t slot, const Batch& batch,
                        const detail::MicroBatches& cut, std::uint32_t i, double scale) {
        const std::size_t n = cut.size(i);
        const std::span<T> gradient = chunk.output_gradient(i, n);
        std::fill(gradient.begin(), gradient.end(), T{}); // as in WithLoss
        const double loss = static_cast<double>(
            loss_(std::span<const T>(chunk.output(slot, n)), detail::slice_of(batch, cut.first(i), n), gradient));
        const double share = static_cast<double>(n) / static_cast<double>(cut.samples);
        unisono::scale(gradient, share * scale);
        return loss * share;
    }

    World* world_;
    Layers<T> layers_;
    Loss loss_;
    Schedule schedule_;
    PipelineOptions options_;
    std::vector<detail::PipelineChunk<T>> chunks_;
    detail::PipelineMessages<World, T> messages_;
    World* parts_group_;
    bool spread_ = false; ///< layers are spread over ranks outside `world_`
    Memory<T> values_, slopes_;
    std::vector<std::span<T>> all_, all_gradients_;     ///< spans of each layer of this rank, chunk by chunk
    std::vector<std::size_t> first_of_chunk_, number_;  ///< indices of layers; the number of each layer's parameter
    std::vector<std::span<T>> given_, given_gradients_; ///< spans of the layers that have parameters
    std::vector<std::string> names_;
    std::vector<std::size_t> places_; ///< numbers of this rank's parameters in the whole model
    std::uint32_t planned_ = 0;       ///< number of micro-batches of the current plan
    bool training_ = false;
    std::vector<PipelineAction> actions_, forward_;
    /// For each chunk: slots in training; micro-batches that have left their slot.
    std::vector<std::size_t> held_, done_;
    std::vector<T> work_memory_;
    std::size_t work_samples_ = 0;
    detail::ChunkWork<T> work_;
    std::vector<T> outputs_;
};

template <class World, class T, class Loss, class... More>
PipelineModel(World&, Layers<T>, Loss, More...) -> PipelineModel<World, T, Loss>;
template <class World, class T, class Loss, pipeline_schedule Schedule, class... More>
PipelineModel(World&, Layers<T>, Loss, Schedule, More...) -> PipelineModel<World, T, Loss, Schedule>;

UNISONO_NAMESPACE_END

#pragma once

/// \file
/// The state of a training beside its policies, if every rank has all of it: the model's
/// parameters, the optimizer's state, and a few numbers. A rank that is behind gets it from a rank
/// that is not, and uses it only when all of it has arrived.

#include "unisono/collective/exchange.hpp"
#include "unisono/collective/rooted.hpp"
#include "unisono/core/error.hpp"
#include "unisono/core/list.hpp"
#include "unisono/extensions/elastic/membership_messages.hpp"
#include "unisono/extensions/elastic/memory.hpp"
#include "unisono/guard/loss_scaling.hpp"
#include "unisono/layout/layout.hpp"
#include "unisono/model/model.hpp"
#include "unisono/model/wrapped_model.hpp"
#include "unisono/optimizer/learning_rate.hpp"
#include "unisono/optimizer/optimizer.hpp"
#include "unisono/trainer/agreement.hpp"
#include "unisono/trainer/report.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// Sums of a `fit` that runs in several worlds.
struct FitSums {
    std::vector<EpochReport> epochs = {};
    double weighted_loss = 0; ///< of the last epoch
    bool stopped = false;

    void add(const UpdateReport& update) {
        if (epochs.empty() || epochs.back().epoch != update.epoch) {
            epochs.push_back({.epoch = update.epoch});
            weighted_loss = 0;
        }
        EpochReport& sums = epochs.back();
        (update.committed ? sums.updates : sums.skipped) += 1;
        if (!update.committed) return;
        sums.samples += update.samples;
        weighted_loss += update.loss * static_cast<double>(update.samples);
        sums.loss = sums.samples > 0 ? weighted_loss / static_cast<double>(sums.samples) : 0;
    }
};

/// The state after the last update, without the parameters, which the model holds.
template <class T>
struct ElasticState {
    /// `made`: updates, including those that the guard has left out. `passes`: the same plus calls
    /// that have ended. Of two ranks, the one with more passes is ahead.
    std::uint64_t made = 0, passes = 0;
    TrainingProgress progress = {};
    std::vector<std::int32_t> grids = {}; ///< exponents of the grids, with Reproducible
    LossScale loss_scale = {};
    FitSums sums = {};
    UpdateReport last = {}; ///< report of the last update of a `fit`
    OptimizerState<T> optimizer = {};
    bool has_optimizer = false; ///< false: the optimizer's state is that before the first update
    RatePoint point = {};
    std::uint64_t fits = 0;    ///< number of calls of `fit` that have ended
    std::int64_t fit_end = -1; ///< of the `fit` in progress: the first epoch that it does not make; -1: there is none
};

/// Writes numbers one after another, and reads them back.
class StateRecord {
public:
    template <class T>
    void put(std::span<const T> values) {
        static_assert(std::is_trivially_copyable_v<T>);
        copy_bytes(extend(values.size_bytes()), values.data(), values.size_bytes());
    }
    /// Room for `bytes` more bytes, to be written before the next call.
    [[nodiscard]] std::uint8_t* extend(std::size_t bytes) {
        bytes_.resize(bytes_.size() + bytes);
        return bytes_.data() + bytes_.size() - bytes;
    }
    /// The next `bytes` bytes.
    [[nodiscard]] const std::uint8_t* next(std::size_t bytes) {
        UNISONO_ASSERT(bytes <= bytes_.size() - at_, "all ranks have equal models and optimizers");
        at_ += bytes;
        return bytes_.data() + at_ - bytes;
    }
    template <class T>
    void put_one(const T& value) {
        put(std::span<const T>(&value, 1));
    }
    template <class T>
    void take(std::span<T> values) {
        static_assert(std::is_trivially_copyable_v<T>);
        copy_bytes(values.data(), next(values.size_bytes()), values.size_bytes());
    }
    template <class T>
    [[nodiscard]] T take_one() {
        T value{};
        take(std::span<T>(&value, 1));
        return value;
    }
    /// A list, and its length before it.
    template <class T>
    void put_list(const std::vector<T>& values) {
        put_one(std::uint64_t{values.size()});
        put(std::span<const T>(values));
    }
    template <class T>
    void take_list(std::vector<T>& values) {
        values.resize(take_length(sizeof(T)));
        take(std::span<T>(values));
    }
    /// The length of a list whose elements have at least `bytes` bytes each.
    /// \throws error mismatch if the record has fewer bytes
    [[nodiscard]] std::size_t take_length(std::size_t bytes) {
        const auto length = take_one<std::uint64_t>();
        const std::size_t left = bytes_.size() - at_;
        if (length <= left / bytes) return static_cast<std::size_t>(length);
        throw error(ErrorCode::mismatch,
                    concat({"Trainer: a list in the state of another rank has ", length, " elements of ", bytes,
                            " or more bytes, and ", left, " bytes follow; expected the same program on all ranks"}));
    }
    [[nodiscard]] std::vector<std::uint8_t>& bytes() { return bytes_; }

    /// Gives the record of rank `source` to all ranks. Collective.
    template <class World>
    void share(World& world, int source) {
        std::array<std::uint64_t, 1> size = {bytes_.size()};
        broadcast(world, size, source);
        bytes_.resize(size[0]);
        broadcast(world, std::span<std::uint8_t>(bytes_), source);
    }

private:
    std::vector<std::uint8_t> bytes_;
    std::size_t at_ = 0;
};

/// Visits the numbers of a state, which are all of it but lists, parameters and the optimizer's
/// arrays.
template <class State, class Visit>
void for_each_number(State& state, Visit visit) {
    visit(state.made);
    visit(state.passes);
    visit(state.progress);
    visit(state.loss_scale);
    visit(state.sums.weighted_loss);
    visit(state.sums.stopped);
    visit(state.last);
    visit(state.has_optimizer);
    visit(state.point);
    visit(state.fits);
    visit(state.fit_end);
}
template <class T>
void put_numbers(StateRecord& record, const ElasticState<T>& state) {
    for_each_number(state, [&](const auto& one) { record.put_one(one); });
    record.put_list(state.grids);
    record.put_list(state.sums.epochs);
}
template <class T>
void take_numbers(StateRecord& record, ElasticState<T>& state) {
    for_each_number(state, [&](auto& one) { record.take(std::span(&one, 1)); });
    record.take_list(state.grids);
    record.take_list(state.sums.epochs);
}
/// Writes the memory that a trainer changes: the parameters, and the optimizer's arrays, if given.
template <class T, class Copies, class Model>
void put_memory(StateRecord& record, const Copies& copies, Model& model, const OptimizerState<T>* optimizer) {
    const auto put = [&](const auto& one) {
        const std::size_t bytes = one.size() * sizeof(T);
        copies.to_host(record.extend(bytes), one.data(), bytes);
    };
    for_each_span(model.parameters(), put);
    for (std::size_t a = 0; optimizer != nullptr && a < optimizer->size(); ++a) put(optimizer->array(a));
}
template <class T, class Copies, class Model>
void take_memory(StateRecord& record, const Copies& copies, Model& model, OptimizerState<T>* optimizer) {
    const auto take = [&](const auto& one) {
        const std::size_t bytes = one.size() * sizeof(T);
        copies.to_device(one.data(), record.next(bytes), bytes);
    };
    for_each_span(model.parameters(), take);
    for (std::size_t a = 0; optimizer != nullptr && a < optimizer->size(); ++a) take(optimizer->array(a));
}
/// As `take_memory`, beside a trainer of the model: also writes the 16-bit copy of the parameters,
/// if the model computes with one. Null: there is no trainer any more.
template <class T, class Copies, class Trainer, class Model>
void give_back(StateRecord& record, const Copies& copies, Trainer* trainer, Model& model,
               OptimizerState<T>* optimizer) {
    take_memory(record, copies, model, optimizer);
    if constexpr (model_on_device<Model>) {
        const auto write = [&](auto one) { trainer->state().kernels().write_low_weights(one.data(), one.size()); };
        if (trainer != nullptr) for_each_span(model.parameters(), write);
    }
    write_copy(model);
    age_copy(model);
}
template <class Copies, class Model, class T>
void put_state(StateRecord& record, const Copies& copies, Model& model, const ElasticState<T>& state) {
    put_numbers(record, state);
    put_memory(record, copies, model, state.has_optimizer ? &state.optimizer : nullptr);
}

/// Restores the numbers of a snapshot. `is_set`: keeps the epoch and the schedule's point, which
/// the user has set since the snapshot.
template <class T>
void go_back(StateRecord& record, ElasticState<T>& state, bool is_set) {
    const Epoch epoch = state.progress.epoch;
    const RatePoint point = state.point;
    take_numbers(record, state);
    if (!is_set) return;
    state.progress.epoch = epoch;
    state.point = point;
}
/// Restores the state. Local. Only a device's failure, which ends this rank, can interrupt it.
template <class Copies, class Model, class T>
void take_state(StateRecord& record, const Copies& copies, Model& model, ElasticState<T>& state) {
    take_numbers(record, state);
    take_memory(record, copies, model, state.has_optimizer ? &state.optimizer : nullptr);
}

/// Equal for models whose state fits each other.
template <class T, class Model>
std::uint64_t shape_hash(Model& model) {
    std::uint64_t hash = fnv_basis;
    const auto add = [&](std::uint64_t word) { hash = hash_bytes(&word, sizeof word, hash); };
    add(static_cast<std::uint64_t>(element_type_of<T>));
    for_each_span(model.parameters(), [&](auto one) { add(one.size()); });
    return hash;
}
template <class Model>
std::uint64_t parameters_of(Model& model) {
    std::uint64_t count = 0;
    for_each_span(model.parameters(), [&](auto one) { count += one.size(); });
    return count;
}

/// Brings all ranks to the last update that any rank has made, which `source` has. That includes
/// added ranks, which have no state (`new_here`). `finished`: the number of the user's calls that
/// this rank has finished; returns the maximum over all ranks. Collective. Cost: 32 bytes per rank;
/// if a rank is behind, also a broadcast of the state, of which all ranks hold a second copy during
/// it in memory of the host. Errors, the same on all ranks: mismatch if an added rank has another
/// model.
template <class World, class Model, class T>
std::uint64_t bring_forward(World& world, int source, bool new_here, std::uint64_t finished, Model& model,
                            ElasticState<T>& state) {
    constexpr std::size_t words = 4;
    List<std::uint64_t> mine;
    mine.push_back(new_here ? no_state_yet : state.passes);
    mine.push_back(finished);
    mine.push_back(shape_hash<T>(model));
    mine.push_back(parameters_of(model));
    List<std::uint64_t> all(words * static_cast<std::size_t>(world.size()));
    if (world.size() == 1) return finished;
    gather_words(world, mine, all);
    std::uint64_t most = 0;
    const std::uint64_t* const best = all.data() + words * static_cast<std::size_t>(source);
    const std::uint64_t wanted = best[0];
    bool behind = false;
    for (std::size_t i = 0; i < all.size(); i += words) {
        behind = behind || all[i] != wanted;
        most = std::max(most, all[i + 1]);
        if (all[i + 2] == best[2]) continue;
        const int rank = world.world_rank(static_cast<int>(i / words));
        throw_mismatch(
            "Trainer", rank, world.world_rank(source),
            concat({"the model of rank ", rank, " has ", all[i + 3],
                    " parameters in tensors of other sizes or types than those of rank ", world.world_rank(source),
                    ", whose training it joins and which has ", best[3], "; expected the same model"}));
    }
    if (!behind) return most;
    StateRecord record;
    const auto copies = state_copies(world, model);
    if (world.rank() == source) put_state(record, copies, model, state);
    record.share(world, source);
    if (new_here || state.passes != wanted) take_state(record, copies, model, state);
    return most;
}

} // namespace detail
UNISONO_NAMESPACE_END

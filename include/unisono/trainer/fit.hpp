#pragma once

/// \file
/// The training loop: epochs, rounds, windows, updates.

#include "unisono/data/loader.hpp"
#include "unisono/observe/progress.hpp"
#include "unisono/trainer/plan.hpp"
#include "unisono/trainer/session.hpp"
#include "unisono/trainer/stop_on_signal.hpp"

#include <array>
#include <concepts>
#include <cstdint>
#include <string_view>
#include <utility>

UNISONO_NAMESPACE_BEGIN
namespace detail {

struct IgnoreUpdates {
    void operator()(const UpdateReport&) const {}
};

/// Calls the observer; true if training should continue. A callable that returns nothing never
/// stops it.
template <class OnUpdate>
bool goes_on(OnUpdate& on_update, const UpdateReport& report) {
    if constexpr (std::convertible_to<decltype(on_update(report)), bool>) return static_cast<bool>(on_update(report));
    else {
        on_update(report);
        return true;
    }
}

/// Shows the progress of one `fit`: an observer's own run, or the library's reporter for
/// `Progress`.
template <class Observer>
auto start_observer(const Observer& observer, bool prints) {
    if constexpr (requires { observer.start(prints); }) return observer.start(prints);
    else return ProgressReporter<>(observer, prints);
}

/// The position where a `fit` begins. The first `fit` of a restored training, unless it names a
/// start, must ask for the samples and random numbers with which the saved training would have
/// continued. \throws error bad_input
void begin_fit(TrainingProgress& progress, const FitOptions& options, std::int64_t data_size);

/// One call of `fit`.
template <class Session, class Data, class OnUpdate>
class Fit {
public:
    /// `position`: where to begin; it moves with each update, also if one throws.
    Fit(Session& session, Data& data, const FitOptions& options, Position& position, OnUpdate& on_update)
        : session_(session), data_(data), options_(options), position_(position), first_epoch_(position.epoch.number()),
          on_update_(on_update), window_(session.policies().accumulation.window(
                                     session.policies().hosting.counted(session.policies().sampler))) {}

    FitReport run() {
        auto& world = session_.world();
        const auto& policies = session_.policies();
        const auto size = static_cast<std::size_t>(data_.size());
        session_.assemble();
        const SamplerShape shape = shape_of_fit(policies.sampler, policies.accumulation, policies.hosting, options_,
                                                size, session_.workers(), session_.worker());
        auto stream = policies.sampler.stream(shape, position_.epoch);
        plan_ = plan_training(stream, policies.sampler, policies.accumulation, policies.hosting, shape, options_,
                              session_.workers());
        agree_on(world, "fit",
                 std::array<std::string_view, 8>{"FitOptions.stop_on (1: given)", "data.size()",
                                                 "FitOptions.batch_size", "FitOptions.epochs", "the first epoch",
                                                 "the first sample", "the micro-batches of an epoch", "the replicas"},
                 std::array<std::int64_t, 8>{options_.stop_on != nullptr ? 1 : 0, shape.data_size, shape.batch_size,
                                             options_.epochs, position_.epoch.number(), position_.samples,
                                             plan_.rounds_per_epoch, shape.replicas});
        if (Session::served && options_.stop_on != nullptr)
            refuse_input("FitOptions.stop_on is given, with an update that servers make; expected none. Why: workers "
                         "and servers "
                         "have no update in common after which to stop");
        if (session_.serves()) return finish();
        if (position_.samples != 0) stream.restart(position_.epoch, position_.samples);
        if (plan_.updates_per_epoch > 0) point_.updates_total = session_.exchange().applied() + updates_to_come(stream);
        point_.global_batch = static_cast<std::uint64_t>(plan_.samples_per_update);
        Loader loader(data_, std::move(stream),
                      LoaderOptions{.depth = options_.read_ahead, .timeout = world.timeout()});
        auto observer = start_observer(policies.observer, options_.progress && world.rank() == 0);
        observer.begin(point_of(position_.epoch.number(), position_.samples, std::numeric_limits<double>::quiet_NaN()));
        report_.stopped = stopping_.stop(world);
        Epoch epoch = position_.epoch;
        report_.epochs.reserve(static_cast<std::size_t>(options_.epochs));
        for (std::int64_t done = 0; done < options_.epochs && !report_.stopped; ++done) {
            if (done != 0) loader.restart(epoch);
            run_epoch(loader, epoch, observer);
            epoch = epoch.next();
        }
        return finish();
    }

    [[nodiscard]] const TrainingPlan& plan() const { return plan_; }

private:
    FitReport finish() {
        session_.meet();
        if constexpr (Session::asynchronous) agree_on_end();
        broadcast_buffers(session_.world(), session_.model());
        report_.position = position_;
        return std::move(report_);
    }
    /// Agrees on the position of rank 0, a worker: servers have not counted samples, and workers
    /// may have stopped at different positions.
    void agree_on_end() {
        std::array<std::int64_t, 3> end = {position_.epoch.number(), position_.samples, report_.stopped ? 1 : 0};
        broadcast(session_.world(), end, 0);
        position_ = {Epoch{end[0]}, end[1]};
        report_.stopped = end[2] != 0;
        report_.staleness = session_.run().staleness().last();
    }

    template <class Stream>
    std::uint64_t updates_to_come(const Stream& stream) const {
        return static_cast<std::uint64_t>(updates_of(session_.policies().accumulation, plan_, stream) +
                                          (options_.epochs - 1) * plan_.updates_per_epoch);
    }

    ProgressPoint point_of(std::int64_t epoch, std::int64_t samples, double loss) const {
        return {.epoch = static_cast<std::uint64_t>(epoch),
                .epochs = static_cast<std::uint64_t>(first_epoch_ + options_.epochs),
                .samples = static_cast<std::uint64_t>(samples),
                .samples_total = static_cast<std::uint64_t>(plan_.shape.data_size),
                .loss = loss};
    }

    template <class Loader, class Observer>
    void run_epoch(Loader& loader, Epoch epoch, Observer& observer) {
        report_.epochs.push_back({.epoch = epoch.number()});
        double weighted_loss = 0;
        begin_window();
        for (auto* item = loader.next(); item != nullptr; item = loader.next()) {
            const MicroBatch& micro = item->entry;
            const bool due = micro.ends_round && due_after(micro);
            if (due && plan_.most_hosted == 1 && window_.totals().micro_batches == 0) session_.expect_one();
            if (item->batch)
                session_.add(*item->batch, static_cast<double>(micro.samples.size()), facts_of(micro, epoch), due);
            if (!micro.ends_round) continue;
            if constexpr (counts_tokens) session_.end_round();
            window_.add(totals_of(micro));
            if (!(counts_tokens ? window_.closed() || (micro.ends_epoch && window_.due_at_end()) : due)) {
                if (micro.ends_epoch) session_.abandon();
                continue;
            }
            const UpdateReport update = session_.update(epoch.number(), point_);
            if (session_.must_repeat()) {
                loader.restart(epoch, position_.samples); // where this window began
                begin_window();
                continue;
            }
            session_.stop_if_not_finite(update, "fit");
            EpochReport& sums = report_.epochs.back();
            (update.committed ? sums.updates : sums.skipped) += 1;
            if (!update.committed && !update.alone && point_.updates_total != 0)
                --point_.updates_total; // as who goes on from here would count
            if (update.committed) {
                sums.samples += update.samples;
                weighted_loss += update.loss * static_cast<double>(update.samples);
            }
            position_ = micro.ends_epoch ? Position{epoch.next(), 0} : micro.resume;
            observer.update(point_of(epoch.number(), micro.resume.samples, update.loss));
            if constexpr (!std::is_same_v<OnUpdate, IgnoreUpdates>) show_image(session_.model());
            report_.stopped = !goes_on(on_update_, update) || stopping_.stop(session_.world());
            begin_window();
            if (report_.stopped) break;
        }
        EpochReport& sums = report_.epochs.back();
        sums.loss = sums.samples > 0 ? weighted_loss / static_cast<double>(sums.samples) : 0;
        if (report_.stopped) return;
        position_ = {epoch.next(), 0};
        observer.epoch_end(point_of(epoch.number(), plan_.shape.data_size, sums.loss));
    }

    /// Starts a new window; what an epoch's end has dropped no longer counts.
    void begin_window() {
        session_.begin();
        window_.reset();
        tokens_before_ = 0;
    }

    static constexpr bool counts_tokens =
        std::remove_cvref_t<decltype(std::declval<Session&>().policies().accumulation)>::counts_tokens;

    /// Whether an update follows this round, as far as that is known before the round's tokens are
    /// counted.
    bool due_after(const MicroBatch& micro) const {
        if constexpr (counts_tokens) return false;
        auto after = window_;
        after.add({plan_.counted, micro.round_samples, 0});
        return after.closed() || (micro.ends_epoch && after.due_at_end());
    }

    Totals totals_of(const MicroBatch& micro) {
        Totals round{plan_.counted, micro.round_samples, 0};
        if constexpr (counts_tokens) {
            std::array<double, 1> tokens = {session_.exchange().sums().tokens - tokens_before_};
            tokens_before_ += tokens[0];
            if (session_.world().size() > 1) all_reduce(session_.world(), tokens);
            round.tokens = static_cast<std::int64_t>(tokens[0]);
        }
        return round;
    }

    PassFacts facts_of(const MicroBatch& micro, Epoch epoch) const {
        const std::int64_t rounds = window_.totals().micro_batches / plan_.counted;
        return {.seed = options_.seed,
                .epoch = static_cast<std::uint64_t>(epoch.number()),
                .update = session_.exchange().applied(),
                .replica = static_cast<std::uint64_t>(rounds * plan_.shape.replicas + micro.replica),
                .replicas = static_cast<std::uint64_t>(plan_.shape.replicas *
                                                       std::max<std::int64_t>(1, plan_.rounds_per_update)),
                .samples = micro.samples};
    }

    Session& session_;
    Data& data_;
    const FitOptions& options_;
    Position& position_;
    std::int64_t first_epoch_;
    OnUpdate& on_update_;
    decltype(std::declval<Session&>().policies().accumulation.window(1)) window_;
    TrainingPlan plan_;
    RatePoint point_;
    FitReport report_;
    double tokens_before_ = 0;
    StopAgreement stopping_{options_.stop_on};
};

} // namespace detail
UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
UNISONO_NAMESPACE_BEGIN
namespace detail {

UNISONO_DEFINITION void begin_fit(TrainingProgress& progress, const FitOptions& options, std::int64_t data_size) {
    const Position& position = progress.position;
    if (std::exchange(progress.restored, false) && !options.start && progress.data_size != 0) {
        if (options.seed != progress.seed)
            refuse_input({"FitOptions.seed is ", options.seed, "; expected ", progress.seed,
                          ", with which the training began that was restored (or FitOptions.start)"});
        if (position.samples != 0 && data_size != progress.data_size)
            refuse_input({"data.size() is ", data_size, "; expected ", progress.data_size,
                          ", since the training that was restored stands at sample ", position.samples, " of epoch ",
                          position.epoch.number(), " (or FitOptions.start)"});
    }
    if (options.start) progress.position = *options.start;
    progress.seed = options.seed;
    progress.data_size = data_size;
}

} // namespace detail
UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES

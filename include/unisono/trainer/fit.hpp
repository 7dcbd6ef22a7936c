#pragma once

/// \file
/// The training loop: epochs, rounds, windows, updates.

#include "unisono/core/list.hpp"
#include "unisono/core/standard.hpp"
#include "unisono/core/value.hpp"
#include "unisono/data/loader.hpp"
#include "unisono/model/pass.hpp"
#include "unisono/model/wrapped_model.hpp"
#include "unisono/observe/progress.hpp"
#include "unisono/optimizer/learning_rate.hpp"
#include "unisono/trainer/agreement.hpp"
#include "unisono/trainer/plan.hpp"
#include "unisono/trainer/report.hpp"
#include "unisono/trainer/stop_on_signal.hpp"

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

struct IgnoreUpdates {
    void operator()(const UpdateReport&) const {}
};

/// Sets a boolean during its lifetime, and then restores its former value.
class Flag {
public:
    explicit Flag(bool& flag) : flag_(flag), before_(std::exchange(flag, true)) {}
    Flag(const Flag&) = delete;
    Flag& operator=(const Flag&) = delete;
    ~Flag() { flag_ = before_; }

private:
    bool& flag_;
    bool before_;
};

/// Calls the observer; true if training should continue. A callable that returns nothing never
/// stops it.
template <class OnUpdate>
bool goes_on(OnUpdate& on_update, const UpdateReport& report) {
    if constexpr (detail::converts_to<decltype(on_update(report)), bool>) return static_cast<bool>(on_update(report));
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

/// The progress with which a `fit` begins, if all ranks agree on it. The first `fit` of a restored
/// training must ask for the samples and random numbers with which the saved training would have
/// continued, unless it names a start. \throws error bad_input
TrainingProgress begun_fit(const TrainingProgress& progress, const FitOptions& options, std::int64_t data_size);

/// Refuses a call during `fit` that would move the position, since the running `fit` would not
/// notice it.
[[noreturn]] void refuse_in_fit(std::string_view call);

/// The steps of a training without its types, for the loop of `fit`.
class FitSteps {
public:
    virtual void begin_window() = 0;
    /// Returns the next micro-batch of this rank; null: the epoch is over.
    virtual const MicroBatch* next() = 0;
    /// Computes the micro-batch, which is number `replica` of `replicas` of an update. `alone`: no
    /// rank hosts more than one micro-batch of this update.
    virtual void compute(std::uint64_t epoch, std::uint64_t replica, bool last, bool alone) = 0;
    /// Returns the tokens of all ranks in the round that has ended. Called if the accumulation
    /// counts tokens.
    virtual double tokens_of_round() = 0;
    /// Drops the gradients that were collected.
    virtual void abandon() = 0;
    /// \throws error if the update must not be left out
    virtual UpdateReport update(std::int64_t epoch, const RatePoint& point) = 0;
    virtual void restart(Epoch epoch, std::int64_t samples) = 0;
    virtual bool goes_on(const UpdateReport& report) = 0;
    virtual bool stop() = 0;
    enum class Moment : std::uint8_t { begin, update, epoch_end };
    virtual void show(Moment moment, const ProgressPoint& point) = 0;

    std::uint64_t replicas = 1; ///< replicas whose micro-batches make an update
    bool repeat = false;        ///< the last update is to be collected again
    bool counted = true;        ///< the last update counts as made by this rank
    bool shown = true;          ///< `show` must be called after updates
    bool observed = true;       ///< `goes_on` must be called after updates

protected:
    FitSteps() = default;
    FitSteps(const FitSteps&) = default;
    FitSteps& operator=(const FitSteps&) = default;
    ~FitSteps() = default;
};

/// The loop of `fit`: epochs, rounds, windows, updates. `Window`: the accumulation's window.
template <class Window>
class FitLoop {
public:
    /// `position`: where to begin. It moves with each update, even if a later one throws.
    FitLoop(const FitOptions& given, const TrainingPlan& planned, Position& position, const Window& window,
            bool counts_tokens)
        : options(given), plan(planned), position_(position), first_epoch_(position.epoch.number()), window_(window),
          counts_tokens_(counts_tokens) {}

    /// Trains for `options.epochs` epochs. `epoch` has the rounds that are left of the first.
    void run(FitSteps& steps, const EpochRounds& epoch, std::uint64_t updates);

    const FitOptions& options;
    TrainingPlan plan;
    FitReport report;

private:
    void run_epoch(FitSteps& steps, Epoch epoch);

    [[nodiscard]] ProgressPoint point_of(std::int64_t epoch, std::int64_t samples, double loss) const {
        return {.epoch = static_cast<std::uint64_t>(epoch),
                .epochs = static_cast<std::uint64_t>(first_epoch_) + static_cast<std::uint64_t>(options.epochs),
                .samples = static_cast<std::uint64_t>(samples),
                .samples_total = static_cast<std::uint64_t>(plan.shape.data_size),
                .loss = loss};
    }
    /// Starts a new window, and forgets what the end of an epoch has dropped.
    void begin_window(FitSteps& steps) {
        steps.begin_window();
        window_.reset();
        tokens_ = 0;
    }
    /// The whole tokens that a round adds to the window. Fractions are carried over to later
    /// rounds.
    std::int64_t count_tokens(double of_round) {
        const double before = std::exchange(tokens_, tokens_ + of_round);
        return whole_tokens(tokens_) - whole_tokens(before);
    }
    /// True if an update follows this round. If tokens decide, this is not known before the round's
    /// tokens are counted, and the result is false.
    [[nodiscard]] bool due_after(const MicroBatch& micro) const {
        if (counts_tokens_) return false;
        Window after = window_;
        after.add({plan.counted, micro.round_samples, 0});
        return after.closed() || (micro.ends_epoch && after.due_at_end());
    }

    Position& position_;
    std::int64_t first_epoch_;
    Window window_;
    bool counts_tokens_;
    double tokens_ = 0; ///< tokens of all ranks in this window
    RatePoint point_;
    List<EpochReport> epochs_; ///< those that have begun
};

template <class Window>
[[gnu::cold]] void FitLoop<Window>::run(FitSteps& steps, const EpochRounds& rounds, std::uint64_t updates) {
    if (plan.updates_per_epoch > 0) {
        const std::uint64_t begun = updates + static_cast<std::uint64_t>(updates_of(window_, plan, rounds));
        if (__builtin_mul_overflow(options.epochs - 1, plan.updates_per_epoch, &point_.updates_total) ||
            __builtin_add_overflow(point_.updates_total, begun, &point_.updates_total))
            // The function given to fit stops the training.
            point_.updates_total = std::numeric_limits<std::uint64_t>::max();
    }
    point_.global_batch = static_cast<std::uint64_t>(plan.samples_per_update);
    steps.replicas =
        static_cast<std::uint64_t>(plan.shape.replicas * std::max<std::int64_t>(1, plan.rounds_per_update));
    steps.show(FitSteps::Moment::begin,
               point_of(position_.epoch.number(), position_.samples, std::numeric_limits<double>::quiet_NaN()));
    report.stopped = options.stop_on != nullptr && steps.stop();
    Epoch epoch = position_.epoch;
    for (std::int64_t done = 0; done < options.epochs && !report.stopped; ++done) {
        if (done != 0) steps.restart(epoch, 0);
        run_epoch(steps, epoch);
        epoch = epoch.next();
    }
    std::vector<EpochReport>(epochs_.begin(), epochs_.end()).swap(report.epochs);
}

template <class Window>
[[gnu::cold]] void FitLoop<Window>::run_epoch(FitSteps& steps, Epoch epoch) {
    EpochReport sums{.epoch = epoch.number()};
    double weighted_loss = 0;
    begin_window(steps);
    while (const MicroBatch* next = steps.next()) {
        const MicroBatch& micro = *next;
        const bool due = micro.ends_round && due_after(micro);
        const std::int64_t before = window_.totals().micro_batches;
        steps.compute(static_cast<std::uint64_t>(epoch.number()),
                      static_cast<std::uint64_t>(before / plan.counted * plan.shape.replicas + micro.replica), due,
                      due && plan.most_hosted == 1 && before == 0);
        if (!micro.ends_round) continue;
        window_.add({plan.counted, micro.round_samples, counts_tokens_ ? count_tokens(steps.tokens_of_round()) : 0});
        if (!(counts_tokens_ ? window_.closed() || (micro.ends_epoch && window_.due_at_end()) : due)) {
            if (micro.ends_epoch) steps.abandon();
            continue;
        }
        const UpdateReport update = steps.update(epoch.number(), point_);
        if (steps.repeat) {
            steps.restart(epoch, position_.samples); // the position where this window began
            begin_window(steps);
            continue;
        }
        (update.committed ? sums.updates : sums.skipped) += 1;
        if (!steps.counted && point_.updates_total != 0)
            --point_.updates_total; // a fit that continues from here would count the same total
        if (update.committed) {
            sums.samples += update.samples;
            weighted_loss += update.loss * static_cast<double>(update.samples);
        }
        position_ = micro.ends_epoch ? Position{epoch.next(), 0} : micro.resume;
        if (steps.shown)
            steps.show(FitSteps::Moment::update, point_of(epoch.number(), micro.resume.samples, update.loss));
        report.stopped = (steps.observed && !steps.goes_on(update)) || (options.stop_on != nullptr && steps.stop());
        begin_window(steps);
        if (report.stopped) break;
    }
    sums.loss = sums.samples > 0 ? weighted_loss / static_cast<double>(sums.samples) : 0;
    epochs_.push_back(sums);
    if (report.stopped) return;
    position_ = {epoch.next(), 0};
    steps.show(FitSteps::Moment::epoch_end, point_of(epoch.number(), plan.shape.data_size, sums.loss));
}

/// The steps of one call of `fit`. Not inlined into the loop, which would have them twice.
template <class Training, class Model, class Accumulation, class Loader, class Observer, class OnUpdate>
class FitStepsOf final : public FitSteps {
public:
    FitStepsOf(Training& training, Model& model, const Accumulation&, Loader& loader, Observer& observer,
               OnUpdate& on_update, const FitOptions& options)
        : training_(training), model_(model), loader_(loader), observer_(observer), on_update_(on_update),
          seed_(options.seed), stopping_(options.stop_on, &training.tally().parts()) {
        if constexpr (std::is_same_v<Observer, ProgressReporter<>>)
            this->shown = observer.style() != ProgressStyle::off;
        this->observed = !std::is_same_v<OnUpdate, IgnoreUpdates>;
    }

    [[gnu::noinline]] void begin_window() override {
        training_.begin();
        tokens_before_ = 0;
    }
    [[gnu::noinline]] const MicroBatch* next() override {
        item_ = loader_.next();
        return item_ == nullptr ? nullptr : &item_->entry;
    }
    [[gnu::noinline]] void compute(std::uint64_t epoch, std::uint64_t replica, bool last, bool alone) override {
        if (alone) training_.expect_one();
        if (!item_->batch) return;
        const std::span<const std::size_t> samples = item_->entry.samples;
        training_.add(model_, *item_->batch, static_cast<double>(samples.size()),
                      PassFacts{.seed = seed_,
                                .epoch = epoch,
                                .update = training_.applied(),
                                .replica = replica,
                                .replicas = this->replicas,
                                .samples = samples},
                      last);
    }
    [[gnu::noinline]] double tokens_of_round() override {
        if constexpr (Accumulation::counts_tokens) {
            training_.end_round();
            std::array<double, 1> tokens = {training_.tally().sums().tokens - tokens_before_};
            tokens_before_ += tokens[0];
            if (training_.world().size() > 1) all_reduce(training_.world(), tokens, Few<Sum>{});
            return tokens[0];
        } else {
            return 0;
        }
    }
    [[gnu::noinline]] void abandon() override { training_.discard(); }
    [[gnu::noinline]] UpdateReport update(std::int64_t epoch, const RatePoint& point) override {
        const std::uint64_t before = training_.applied();
        const UpdateReport report = training_.close(point, epoch);
        this->counted = training_.applied() != before;
        this->repeat = !training_.accepts(report, "fit");
        return report;
    }
    [[gnu::noinline]] void restart(Epoch epoch, std::int64_t samples) override { loader_.restart(epoch, samples); }
    [[gnu::noinline]] bool goes_on(const UpdateReport& report) override {
        if constexpr (!std::is_same_v<OnUpdate, IgnoreUpdates>) write_copy(model_);
        return detail::goes_on(on_update_, report);
    }
    [[gnu::noinline]] bool stop() override { return stopping_.stop(training_.world()); }
    [[gnu::noinline]] void show(Moment moment, const ProgressPoint& point) override {
        if (moment == Moment::update) observer_.update(point);
        else if (moment == Moment::begin) observer_.begin(point);
        else observer_.epoch_end(point);
    }

private:
    Training& training_;
    Model& model_;
    Loader& loader_;
    Observer& observer_;
    OnUpdate& on_update_;
    typename Loader::Item* item_ = nullptr;
    std::uint64_t seed_;
    double tokens_before_ = 0;
    StopAgreement stopping_;
};

/// Compares what must be equal on all ranks before `fit`.
void agree_on_fit(GroupCore& world, const FitOptions& options, const Position& position, const TrainingPlan& plan);

/// One call of `fit`. `run`: of the update policy. `progress` stays unchanged if the call is
/// refused.
template <class Training, class Run, class Model, class Policies, class Data, class OnUpdate>
[[gnu::cold]] FitReport fit_on(Training& training, Run& run, Model& model, const Policies& policies,
                               TrainingProgress& progress, Data& data, const FitOptions& options, OnUpdate& on_update) {
    auto& world = training.world();
    const TrainingProgress begun = begun_fit(progress, options, static_cast<std::int64_t>(data.size()));
    const Position& start = begun.position;
    training.assemble();
    const SamplerShape shape =
        shape_of_fit(policies, options, static_cast<std::size_t>(data.size()), training.workers(), training.worker());
    auto stream = policies.sampler.stream(shape, start.epoch);
    const TrainingPlan plan = plan_training(rounds_of(stream), policies, shape, options, training.workers());
    agree_on_fit(world, options, start, plan);
    if (options.stop_on != nullptr) run.check_may_stop();
    if (start.samples != 0) stream.restart(start.epoch, start.samples); // refuses an invalid position, on all ranks
    progress = begun;
    FitLoop loop(options, plan, progress.position, policies.accumulation.window(plan.counted),
                 Policies::Accumulation::counts_tokens);
    if (!training.serves()) {
        const EpochRounds rounds = rounds_of(stream);
        Loader loader(data, std::move(stream), LoaderOptions{.depth = options.read_ahead, .timeout = world.timeout()});
        auto observer = start_observer(policies.observer, options.progress && world.rank() == 0);
        FitStepsOf steps(training, model, policies.accumulation, loader, observer, on_update, options);
        loop.run(steps, rounds, training.applied());
    }
    training.synchronise();
    run.end_fit(progress.position, loop.report);
    broadcast_buffers(world, model);
    loop.report.position = progress.position;
    return std::move(loop.report);
}

} // namespace detail
UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
UNISONO_NAMESPACE_BEGIN
namespace detail {

[[gnu::cold]] UNISONO_DEFINITION void agree_on_fit(GroupCore& world, const FitOptions& options,
                                                   const Position& position, const TrainingPlan& plan) {
    constexpr std::size_t count = 9;
    static constexpr std::string_view names[count] = {"FitOptions.stop_on (1: given)",
                                                      "data.size()",
                                                      "FitOptions.batch_size",
                                                      "FitOptions.epochs",
                                                      "FitOptions.seed",
                                                      "the first epoch",
                                                      "the first sample",
                                                      "the micro-batches of an epoch",
                                                      "the replicas"};
    const std::int64_t values[count] = {options.stop_on != nullptr ? 1 : 0,
                                        plan.shape.data_size,
                                        plan.shape.batch_size,
                                        options.epochs,
                                        static_cast<std::int64_t>(options.seed),
                                        position.epoch.number(),
                                        position.samples,
                                        plan.rounds_per_epoch,
                                        plan.shape.replicas};
    agree_on(world, "fit", {names, count}, {values, count});
}

[[gnu::cold]] UNISONO_DEFINITION TrainingProgress begun_fit(const TrainingProgress& progress, const FitOptions& options,
                                                            std::int64_t data_size) {
    const Position& position = progress.position;
    if (options.read_ahead < 0 || options.read_ahead > LoaderOptions::most_depth)
        refuse_input({"FitOptions.read_ahead is ", options.read_ahead, ", expected 0 to ", LoaderOptions::most_depth});
    if (progress.restored && !options.start && progress.data_size != 0) {
        if (options.seed != progress.seed)
            refuse_input({"FitOptions.seed is ", options.seed, "; expected ", progress.seed,
                          ", the seed of the training that was restored (or set FitOptions.start)"});
        if (position.samples != 0 && data_size != progress.data_size)
            refuse_input({"data.size() is ", data_size, "; expected ", progress.data_size,
                          ", since the training that was restored is at sample ", position.samples, " of epoch ",
                          position.epoch.number(), " (or set FitOptions.start)"});
    }
    TrainingProgress begun = progress;
    if (options.start) begun.position = *options.start;
    begun.seed = options.seed;
    begun.data_size = data_size;
    begun.restored = false;
    return begun;
}

UNISONO_DEFINITION void refuse_in_fit(std::string_view call) {
    refuse_input({call, " was called in the function given to fit; expected it before or after fit, which ends if that "
                        "function returns false. Why: fit continues with the next samples, and not with those of a "
                        "restored position"});
}

} // namespace detail
UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES

#pragma once

/// \file
/// The run of an update policy (update/update.hpp) without its type: when ranks exchange what.

#include "unisono/trainer/report.hpp"
#include "unisono/update/update.hpp"

#include <cstdint>
#include <type_traits>
#include <utility>

UNISONO_NAMESPACE_BEGIN
namespace detail {

class Mode {
public:
    Mode(const Mode&) = delete;
    Mode& operator=(const Mode&) = delete;
    virtual ~Mode() = default;

    const bool agrees;    ///< as the run declares it
    const bool optimizes; ///< as the run declares it

    [[nodiscard]] virtual bool alone(std::uint64_t updates) const = 0;
    virtual void before() = 0;
    virtual Verdict apply() = 0;
    virtual void publish() = 0;
    virtual Verdict discard(Verdict verdict) = 0;
    virtual bool after(Verdict verdict) = 0;
    virtual void synchronise() = 0;
    [[nodiscard]] virtual int workers() const = 0;
    virtual void tell(UpdateReport& report) = 0;

protected:
    Mode(bool agreeing, bool optimizing) : agrees(agreeing), optimizes(optimizing) {}
};

/// `Policy`: of the family update.
template <class Policy, class Training>
class ModeOf final : public Mode {
public:
    static_assert(
        requires(const Policy& policy, Training& training) {
            { policy.start(training) } -> update_run;
        },
        "unisono::Trainer: the update policy lacks what update/update.hpp asks of one: start(training) returns a run, "
        "for instance one that derives from UpdateRun");
    using Run = decltype(std::declval<const Policy&>().start(std::declval<Training&>()));
    static_assert(
        !requires(Run& run) { run.meet(); },
        "unisono::Trainer: found an update whose run has `meet`. Required: `synchronise`. Why: the trainer calls "
        "no `meet`, so ranks would never hold the same parameters");
    static_assert(Policy::agrees || !Run::agrees() || std::is_same_v<Run, UpdateRun<Training>>,
                  "unisono::Trainer: found an update that does not declare `agrees`, with a run that does. Required: a "
                  "run that derives from LocalRun or AsynchronousRun (update/local.hpp, "
                  "unisono/updates.hpp). "
                  "Why: the trainer asks the run whether ranks must synchronise");
    static_assert(!Policy::agrees || Run::agrees(),
                  "unisono::Trainer: found an update that declares `agrees`, with a run that does not. Required: a "
                  "policy that does not declare it. Why: between two synchronisations its ranks have different "
                  "parameters, which not every policy allows");
    static_assert(
        !asynchronous<Policy> || !Run::reduces(),
        "unisono::Trainer: found an update that declares `asynchronous`, with a run that does not derive from "
        "AsynchronousRun. Required: one that does (unisono/updates.hpp). Why: its ranks stop at "
        "different updates, and that run gives all of them one position at the end of fit");

    ModeOf(const Policy& policy, Training& training)
        : Mode(Run::agrees(), Run::optimizes()), run(policy.start(training)) {}

    [[nodiscard]] bool alone(std::uint64_t updates) const override { return run.alone(updates); }
    void before() override { run.before(); }
    Verdict apply() override { return run.apply(); }
    void publish() override { run.publish(); }
    Verdict discard(Verdict verdict) override { return run.discard(verdict); }
    bool after(Verdict verdict) override { return run.after(verdict); }
    void synchronise() override { run.synchronise(); }
    [[nodiscard]] int workers() const override { return run.workers(); }
    void tell(UpdateReport& report) override { run.tell(report); }

    Run run;
};

} // namespace detail
UNISONO_NAMESPACE_END

#pragma once

/// \file
/// The run of an update policy (update/update.hpp) without its type: when ranks exchange what.

#include "unisono/trainer/report.hpp"
#include "unisono/update/update.hpp"

#include <cstdint>

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

template <class Run>
class ModeOf final : public Mode {
public:
    template <class Policy, class Training>
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

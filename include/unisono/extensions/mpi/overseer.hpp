#pragma once

/// \file
/// The first fault of a world of MPI's ranks, and what this rank waits for.

#include "unisono/transport/overseer.hpp"

#include <exception>
#include <utility>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The first fault of a world without a control plane: a rank that has a fault sends it to all
/// ranks.
class MpiOverseer final : public Overseer {
public:
    [[nodiscard]] const Fault* first_fault() const noexcept override { return known_ ? &fault_ : nullptr; }
    [[nodiscard]] Fault settle(const Fault& mine) override {
        if (!std::exchange(known_, true)) {
            fault_ = mine;
            untold_ = true;
        }
        return fault_;
    }
    void waits(const Wait& wait) override { wait_ = wait; }
    void waits_no_more() override { wait_ = {}; }
    void leave() noexcept override {}
    [[nodiscard]] bool has_left(int) const noexcept override { return false; }
    [[nodiscard]] bool is_unwinding() const noexcept override { return std::uncaught_exceptions() > exceptions_; }

    /// Notes another rank's fault.
    void hear(const Fault& fault) {
        if (!std::exchange(known_, true)) fault_ = fault;
    }
    /// The operation that this rank has waited for for a while; empty: it does not wait.
    [[nodiscard]] const Wait& wait() const { return wait_; }
    /// True once if this rank has a fault that its peers have not been told.
    [[nodiscard]] bool take_untold() { return std::exchange(untold_, false); }

private:
    int exceptions_ = std::uncaught_exceptions();
    bool known_ = false;
    bool untold_ = false;
    Fault fault_;
    Wait wait_;
};

} // namespace detail
UNISONO_NAMESPACE_END

#pragma once

/// \file
/// The overseer of a world of unrelated processes: a job's control plane (launch/), behind virtual
/// functions, so that transports need not include sockets and threads. They are called rarely:
/// after a rank has waited for a while, at the first fault, and at the end.

#include "unisono/core/text.hpp"
#include "unisono/core/threads.hpp"
#include "unisono/launch/launch.hpp"

#include <exception>
#include <utility>

UNISONO_NAMESPACE_BEGIN
namespace detail {

class Overseer {
public:
    Overseer() = default;
    Overseer(const Overseer&) = delete;
    Overseer& operator=(const Overseer&) = delete;
    virtual ~Overseer() = default;

    /// The job's first fault; nullptr if there is none.
    [[nodiscard]] virtual const Fault* first_fault() const noexcept = 0;
    /// Makes this the job's first fault unless there is one, and returns the first. For a timeout,
    /// looks for its cause first.
    [[nodiscard]] virtual Fault settle(const Fault& mine) = 0;
    virtual void waits(const Wait& wait) = 0;
    virtual void waits_no_more() = 0;
    /// Says goodbye.
    virtual void leave() noexcept = 0;
    /// True if another rank has said goodbye.
    [[nodiscard]] virtual bool has_left(int rank) const noexcept = 0;
    /// True if an exception is being thrown that was not when the world began.
    [[nodiscard]] virtual bool is_unwinding() const noexcept = 0;
};

/// The fault of a rank whose world ends because of an exception: no other rank would report it.
inline Fault left_by_exception(int rank) {
    return {.code = ErrorCode::aborted,
            .rank = rank,
            .operation = {},
            .message = concat({"rank ", rank, " left its world because of an exception"})};
}

template <control_plane Control>
class ControlOverseer final : public Overseer {
public:
    explicit ControlOverseer(Control control) : control_(std::move(control)) {}

    [[nodiscard]] const Fault* first_fault() const noexcept override { return control_.first_fault(); }
    [[nodiscard]] Fault settle(const Fault& mine) override {
        control_.abort(mine);
        const Fault* const first = control_.first_fault();
        return first != nullptr ? *first : mine;
    }
    void waits(const Wait& wait) override { control_.waits(wait); }
    void waits_no_more() override { control_.waits_no_more(); }
    void leave() noexcept override {
        const NotCancelled whole;
        try {
            control_.leave();
        } catch (...) { // the end of the connection tells it as well
        }
    }
    [[nodiscard]] bool has_left(int rank) const noexcept override { return control_.has_left(rank); }
    [[nodiscard]] bool is_unwinding() const noexcept override { return std::uncaught_exceptions() > exceptions_; }

private:
    Control control_;
    int exceptions_ = std::uncaught_exceptions();
};

} // namespace detail
UNISONO_NAMESPACE_END

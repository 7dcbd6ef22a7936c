#pragma once

/// \file
/// The base of runs whose gradients are applied as they arrive, by servers
/// (extensions/updates/service.hpp) or to common parameters (extensions/updates/hogwild.hpp).

#include "unisono/collective/rooted.hpp"
#include "unisono/core/text.hpp"
#include "unisono/update/staleness.hpp"
#include "unisono/update/update.hpp"

#include <array>
#include <cstdint>
#include <utility>

UNISONO_NAMESPACE_BEGIN

/// Adds the staleness of gradients to `Base`, an UpdateRun or a LocalRun. The derived run counts
/// its gradients in `count_`.
template <class Base>
class AsynchronousRun : public Base {
public:
    using Base::Base;

    [[nodiscard]] static constexpr bool agrees() { return false; }
    /// Each gradient goes to servers, or into common parameters, by itself.
    [[nodiscard]] static constexpr bool reduces() { return false; }

    /// Servers have not counted samples, and workers may have stopped at different positions: all
    /// ranks get those of rank 0, which is a worker. Collective.
    template <class Position, class Report>
    void end_fit(Position& position, Report& report) {
        std::array<std::int64_t, 3> end = {position.epoch.number(), position.samples, report.stopped ? 1 : 0};
        broadcast(this->training().world(), end, 0);
        position = {decltype(position.epoch){end[0]}, end[1]};
        report.stopped = end[2] != 0;
        report.staleness = count_.last();
    }

    template <class Row>
    void describe(Row&& row) const {
        const Staleness& found = count_.known();
        if (found.gradients == 0) return;
        row("staleness", concat({"mean ", found.mean, ", most ", found.most, " updates, at most ", found.most_ahead,
                                 " clocks ahead, of ", count_text(found.gradients), " gradients, ",
                                 count_text(found.late), " more dropped, at the last synchronisation"}));
    }

    [[nodiscard]] const detail::StalenessCount& staleness() const { return count_; }

protected:
    detail::StalenessCount count_;
};

UNISONO_NAMESPACE_END

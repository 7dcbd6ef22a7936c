#pragma once

/// \file
/// Added ranks may train something else: another model, other policies, other calls. If ranks
/// disagree (`mismatch`), those that were added last leave, and the others continue without them.
/// If they disagree again, those that were added before leave, and so on. The ranks of the first
/// world report the difference, as without elastic worlds.

#include "unisono/core/error.hpp"
#include "unisono/core/text.hpp"

UNISONO_NAMESPACE_BEGIN
namespace detail {

class Probation {
public:
    /// `was_added`: to a running world. `last`: the highest number of a member of this rank's first
    /// world. Ranks that are added later have higher ones.
    Probation(bool was_added, int last) : was_added_(was_added), last_(last) {}

    /// True if the world ends because ranks disagree, and this rank continues without those that
    /// were added later. A rank that was added, and has none after it, leaves.
    template <class World>
    bool ends(World& world, const error& failed) const {
        if (failed.code() != ErrorCode::mismatch || world.rank() < 0) return false;
        if (world.members().back() > last_) {
            world.abort({.code = ErrorCode::mismatch,
                         .rank = failed.rank(),
                         .peer = failed.peer(),
                         .operation = failed.operation(),
                         .sequence = failed.sequence(),
                         .message = concat({"the ranks that were added last leave again: ", failed.why().message})});
            return true;
        }
        if (was_added_) world.leave();
        return false;
    }

private:
    bool was_added_;
    int last_;
};

} // namespace detail
UNISONO_NAMESPACE_END

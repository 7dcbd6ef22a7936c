#pragma once

/// \file
/// Added ranks may train something else: another model, other policies. All ranks compare these
/// before the first update, and added ranks leave again if they do not fit.

#include "unisono/core/error.hpp"
#include "unisono/core/text.hpp"

#include <string>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// One rank's view from the start of a world to its first update.
class Probation {
public:
    /// `here`: this rank was added.
    explicit Probation(bool here) : there_(here), here_(here) {}
    /// Called when a world begins. `joined`: it has added ranks.
    void begin(bool joined) { there_ = there_ || joined; }
    /// Called when all ranks have made an update.
    void pass() { there_ = here_ = false; }

    /// True if a comparison of all ranks has shown that added ranks do not fit. Then the world
    /// ends, and this rank continues without them. A rank that was added leaves.
    template <class World>
    bool ends(World& world, const error& failed) const {
        if (!there_ || (failed.code() != ErrorCode::mismatch && !is_sent_away(failed))) return false;
        if (here_) {
            world.leave();
            return false;
        }
        world.abort({.code = ErrorCode::peer_lost,
                     .rank = world.rank(),
                     .peer = -1,
                     .operation = "elastic",
                     .sequence = 0,
                     .message = concat({sent_away, failed.why().message})});
        return true;
    }

private:
    static constexpr const char* sent_away = "ranks that were added leave again: ";
    /// True if another rank has found first that this rank does not fit.
    [[nodiscard]] bool is_sent_away(const error& failed) const {
        return here_ && failed.why().message.find(sent_away) != std::string::npos;
    }

    bool there_; ///< there are added ranks that have made no update yet
    bool here_;  ///< this rank is one of them
};

} // namespace detail
UNISONO_NAMESPACE_END

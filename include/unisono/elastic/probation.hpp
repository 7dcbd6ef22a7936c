#pragma once

/// \file
/// Ranks that were added may train something else: another model, other policies. All ranks compare
/// these before the first update, and the new ones leave again if they do not fit.

#include "unisono/core/error.hpp"
#include "unisono/core/text.hpp"

#include <string>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// One rank's view, from the beginning of a world to its first update.
class Probation {
public:
    /// `here`: this rank is one of those that were added.
    explicit Probation(bool here) : there_(here), here_(here) {}
    /// A world begins, with or without ranks that were added.
    void begin(bool joined) { there_ = there_ || joined; }
    /// All have made an update.
    void pass() { there_ = here_ = false; }

    /// Whether ranks that were added have shown that they do not fit, by what all compare: the
    /// world ends, and this rank goes on without them. One that was added leaves it.
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
    /// Whether another rank has found first that this one does not fit.
    [[nodiscard]] bool is_sent_away(const error& failed) const {
        return here_ && failed.why().message.find(sent_away) != std::string::npos;
    }

    bool there_; ///< there are ranks that were added, and have made no update yet
    bool here_;  ///< and this is one of them
};

} // namespace detail
UNISONO_NAMESPACE_END

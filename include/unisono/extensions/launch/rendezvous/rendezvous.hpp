#pragma once

/// \file
/// The rendezvous: W processes that know their rank and the rendezvous point become one job with a
/// control plane.

#include "unisono/extensions/launch/control/control_plane.hpp"
#include "unisono/extensions/launch/rendezvous/identity.hpp"
#include "unisono/extensions/launch/rendezvous/rendezvous_environment.hpp"

UNISONO_NAMESPACE_BEGIN

/// A rendezvous with the other ranks of the job. Returns the control plane that connects them; a
/// world of one returns at once. Collective over the job; a process may take part in several jobs.
///
/// Errors, the same on all ranks that came: timeout after `options.timeout`, which names the ranks
/// that never came; bad_input if ranks disagree about the world or two claim the same rank;
/// peer_lost if a rank died meanwhile. On this rank alone: refused if rank 0 cannot listen, the
/// file is not this user's, or the point has no secret; timeout if there is no answer.
ControlPlane rendezvous(const Identity& me, const RendezvousPoint& point, const RendezvousOptions& options = {});

/// `rendezvous` with identity and point from the environment.
ControlPlane rendezvous(const RendezvousOptions& options = {});

UNISONO_NAMESPACE_END

#if UNISONO_DEFINES_PART(UNISONO_PART_NETWORK)
#include "unisono/extensions/launch/rendezvous/elastic_folder.hpp"
#include "unisono/extensions/launch/rendezvous/rendezvous_sides.hpp"

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <utility>

UNISONO_NAMESPACE_BEGIN

UNISONO_DEFINITION ControlPlane rendezvous(const Identity& me, const RendezvousPoint& point,
                                           const RendezvousOptions& options) {
    detail::check_rendezvous(me, options);
    if (me.world == 1) return {};
    if (point.folder.empty() && point.token.is_none() && !options.trusted_network)
        throw error(ErrorCode::refused,
                    concat({"a rendezvous point at ", detail::place_of(point),
                            " has no secret: give it RendezvousPoint::token, or ", detail::how_to_give_a_secret}));

    const nanoseconds deadline = deadline_after(steady_now(), options.timeout);
    const std::uint64_t claimant = detail::draw_claimant();
    detail::Reception own{.hub = nullptr, .file = {}, .reached = point};
    const bool listens = me.rank == 0 && !point.launcher_listens;
    const Environment environment = Environment::of_process();
    const std::chrono::nanoseconds notice_after = detail::notice_after(environment, options.notice_after);
    if (listens) own = detail::receive_ranks(me, point, claimant, notice_after);
    ControlPlane met = detail::join_plane(me, options, deadline, std::move(own.hub), point, [&](std::string& why) {
        std::optional<detail::Entrance> entrance;
        detail::Search search(me, own.reached, claimant);
        if (listens) {
            // Uses the name that the others use, so that another process that is rank 0 there is
            // found. Not every network lets a host reach itself by that name.
            entrance = search.until(std::min(deadline, steady_now() + 3'000'000'000));
            own.reached.host = "127.0.0.1";
            if (!entrance) entrance = detail::Search(me, own.reached, claimant).until(deadline);
        } else {
            detail::SearchNotice notice(
                concat({"rank ", me.rank, " of ", me.world, " is waiting for ",
                        point.launcher_listens ? "the launcher" : "rank 0", " at ", search.where()}),
                notice_after);
            entrance = search.until(deadline, &notice);
        }
        why = concat({search.where(), ": ", search.why()});
        return entrance;
    });
    detail::note_added(environment);
    return met;
}

UNISONO_DEFINITION ControlPlane rendezvous(const RendezvousOptions& options) {
    Environment environment = Environment::of_process();
    const Identity me = identify(environment);
    if (me.world == 1) return {};
    if (options.trusted_network) environment.set("UNISONO_TRUSTED_NETWORK", "1");
    return rendezvous(me, rendezvous_point(environment, me), options);
}

UNISONO_NAMESPACE_END
#endif

#pragma once

/// \file
/// The identity of this process: rank, world, local rank, local world and number of hosts, from the
/// variables of the job's launcher.

#include "unisono/extensions/launch/rendezvous/launcher_claims.hpp"
#include "unisono/extensions/launch/sockets/environment.hpp"

UNISONO_NAMESPACE_BEGIN

/// One process's position in its job. Numbers that a launcher does not give are unknown (-1 or 0)
/// until the rendezvous: see `ControlPlane::placement()`.
struct Identity {
    int rank = 0;
    int world = 1;
    int local_rank = 0;  ///< number among the ranks of this host; -1: unknown
    int local_world = 1; ///< number of ranks of this host; 0: unknown
    int hosts = 1;       ///< number of hosts; 0: unknown
    Launcher launcher = Launcher::none;

    friend bool operator==(const Identity&, const Identity&) = default;
};

/// The identity, from numbers that the program gives. Errors: bad_input unless 0 <= rank < world
/// (<= 2^20).
Identity identity_of(int rank, int world);

/// The identity of this process, from its environment; rank 0 of 1 without a launcher. Pure.
///
/// UNISONO_RANK, UNISONO_WORLD_SIZE, UNISONO_LOCAL_RANK and UNISONO_LOCAL_WORLD_SIZE take
/// precedence, since no other software sets them. Otherwise all launchers found must agree, or
/// UNISONO_LAUNCHER names the one to use.
/// Errors: bad_input for text that is not a number, and for contradictions within one launcher's
/// variables (as on platforms where RANK is the node's) or between launchers. The message quotes
/// the variables with their values.
Identity identify(const Environment& environment);

/// As above, from the environment of this process.
Identity identify();

UNISONO_NAMESPACE_END

#if UNISONO_DEFINES_PART(UNISONO_PART_NETWORK)

#include <string>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN

namespace detail {

inline std::string together(const Claim& claim) {
    std::string text(name_of(claim.launcher));
    text += " says";
    for (const Number* number :
         {&claim.rank, &claim.world, &claim.local_rank, &claim.local_world, &claim.node, &claim.nodes}) {
        if (number->known()) text += concat({" ", number->text()});
    }
    return text;
}

/// Combines two statements about the same number. If the first is unknown, it takes the second
/// one's value. Returns false if they differ.
inline bool agree(Number& first, const Number& second) {
    if (!second.known()) return true;
    if (!first.known()) first = second;
    return first.value == second.value;
}

/// Combines the statements of two launchers. `srun torchrun ...` is no contradiction: the outer
/// launcher counts the agents, which the inner launcher counts as nodes.
inline void combine(Claim& first, const Claim& second) {
    if (!second.rank.known()) { // the second launcher knows only nodes
        if (agree(first.node, second.node) && agree(first.nodes, second.nodes)) return;
    } else {
        Claim merged = first;
        if (agree(merged.rank, second.rank) && agree(merged.world, second.world) &&
            agree(merged.local_rank, second.local_rank) && agree(merged.local_world, second.local_world)) {
            if (!merged.node.known()) merged.node = second.node;
            if (!merged.nodes.known()) merged.nodes = second.nodes;
            first = merged;
            return;
        }
        if (first.node.known() && first.nodes.known() && first.node.value == second.rank.value &&
            first.nodes.value == second.world.value) {
            return;
        }
    }
    refuse_input({"two launchers disagree: ", together(first), "; ", together(second), " (UNISONO_LAUNCHER=",
                  name_of(first.launcher), " or =", name_of(second.launcher), " says which one to believe)"});
}

/// Refuses numbers that no placement of ranks on hosts can explain.
inline void check(const Claim& claim) {
    const auto refuse = [&](const Number& a, const Number& b, const std::string& why) {
        refuse_input({name_of(claim.launcher), ": ", a.text(), " and ", b.text(), " contradict: ", why});
    };
    const auto& [launcher, rank, world, local_rank, local_world, node, nodes] = claim;
    const std::string per_node = concat({" (is ", rank.name, " that of a node? It must be that of a process)"});
    for (const auto& [one, other] : {std::pair{&rank, &world}, {&world, &rank}}) {
        if (one->known() && !other->known())
            refuse_input({name_of(launcher), ": ", one->text(), " is set, but ", other->name, " is not"});
    }
    for (const Number* count : {&world, &local_world, &nodes})
        if (count->known() && count->value < 1) refuse_input({count->text(), ": expected at least 1"});
    if (rank.value >= world.value) refuse(rank, world, concat({"ranks are 0 to ", world.value - 1}));
    if (local_world.known() && local_world.value > world.value)
        refuse(world, local_world, concat({"a host has at most as many ranks as the world", per_node}));
    if (local_rank.known() && local_world.known() && local_rank.value >= local_world.value)
        refuse(local_rank, local_world, concat({"local ranks are 0 to ", local_world.value - 1}));
    if (local_rank.known() && local_rank.value > rank.value)
        refuse(rank, local_rank, concat({"a host's ranks are numbered in the order of the world's", per_node}));
    if (local_rank.known() && local_world.known() && local_world.value - local_rank.value > world.value - rank.value)
        refuse(rank, local_rank,
               concat({"with ", world.text(), " and ", local_world.text(),
                       " there are fewer ranks above this one than its host has", per_node}));
    if (node.known() && nodes.known() && node.value >= nodes.value)
        refuse(node, nodes, concat({"nodes are 0 to ", nodes.value - 1}));
    if (!nodes.known()) return;
    for (const Number* local : {&local_world, &local_rank}) { // the other nodes have at least one rank each
        const int most = world.value - (nodes.value - 1) - (local == &local_rank ? 1 : 0);
        if (most < 0) refuse(world, nodes, concat({"each node has at least one rank", per_node}));
        if (local->value > most)
            refuse(world, *local,
                   concat({"with ", nodes.text(), " there are not enough ranks for the other nodes", per_node}));
    }
    if (nodes.value == 1 && local_world.known() && local_world.value != world.value)
        refuse(world, local_world, concat({"one node (", nodes.text(), ") has all ranks", per_node}));
}

/// Derives the numbers of an identity that follow from the others.
inline Identity identity_of(const Claim& claim) {
    Identity me{.rank = claim.rank.value,
                .world = claim.world.value,
                .local_rank = claim.local_rank.value,
                .local_world = claim.local_world.known() ? claim.local_world.value : 0,
                .hosts = claim.nodes.known() ? claim.nodes.value : 0,
                .launcher = claim.launcher};
    if (me.world == 1 || me.hosts == 1) me.local_world = me.world;
    if (me.hosts == me.world) me.local_world = 1;
    if (me.local_world == me.world) me.local_rank = me.rank;
    if (me.local_world == 1) me.local_rank = 0;
    if (me.hosts == 0 && me.local_world > 0 && me.world % me.local_world == 0) me.hosts = me.world / me.local_world;
    return me;
}

} // namespace detail

UNISONO_DEFINITION Identity identity_of(int rank, int world) {
    if (world < 1 || world > detail::most_ranks)
        refuse_input({"a world has 1 to ", detail::most_ranks, " ranks, found ", world});
    if (rank < 0 || rank >= world) refuse_input({"rank ", rank, " is not one of a world of ", world});
    return {.rank = rank,
            .world = world,
            .local_rank = world == 1 ? 0 : -1,
            .local_world = world == 1 ? 1 : 0,
            .hosts = world == 1 ? 1 : 0,
            .launcher = Launcher::program};
}

UNISONO_DEFINITION Identity identify(const Environment& environment) {
    std::vector<detail::Claim> claims = detail::claims_of(environment);
    if (claims.empty()) return {};
    // A launcher that knows only nodes counts only if there is no other: then there is one process
    // per node.
    detail::Claim claim = claims.front();
    for (std::size_t i = 1; i < claims.size(); ++i) detail::combine(claim, claims[i]);
    if (!claim.rank.known() && !claim.world.known()) {
        claim.rank = claim.node;
        claim.world = claim.nodes;
    }
    detail::check(claim);
    return detail::identity_of(claim);
}

UNISONO_DEFINITION Identity identify() { return identify(Environment::of_process()); }

UNISONO_NAMESPACE_END
#endif

#pragma once

/// \file
/// A world over a network for processes that share a control plane: each listens, and publishes its
/// address.

#include "unisono/extensions/network/world.hpp"
#include "unisono/launch/cores.hpp"
#include "unisono/launch/host.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <sched.h>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// Each process's message to the others, followed by its address, or by the reason why it has none.
struct NetworkCard {
    static constexpr std::uint64_t expected = 0x33746e656e6f7375;

    std::uint64_t version = expected;
    std::uint64_t host = 0;
    std::array<std::uint8_t, JobToken::bytes> random = {}; ///< for the world's key, which is not sent
    std::uint64_t failed = 0;
    cpu_set_t cores = {};
};

/// True if some ranks cannot reach the others by the loopback: those on other hosts or in other
/// network name spaces. Collective.
template <control_plane Control>
bool has_other_hosts(Control& control, nanoseconds deadline) {
    const std::uint64_t mine = network_space();
    const std::vector<Blob> all = control.all_gather(std::as_bytes(std::span(&mine, 1)), deadline);
    return std::any_of(all.begin(), all.end(), [&](const Blob& one) {
        return one.size() != sizeof mine || std::memcmp(one.data(), &mine, sizeof mine) != 0;
    });
}

/// Makes a world. `open(other_hosts)` makes this rank reachable and returns its address, for the
/// other ranks' wires. Collective. Errors, the same on all ranks: those of a rank's `open`; refused
/// for another version; the job's first fault.
template <control_plane Control, class Open>
std::shared_ptr<NetworkWorld> join_network(Control control, nanoseconds deadline, Open open) {
    NetworkCard mine;
    mine.host = host_number();
    mine.cores = own_cores();
    mine.random = JobToken::random().value();
    std::string text;
    const bool other_hosts = has_other_hosts(control, deadline);
    try {
        text = open(other_hosts);
    } catch (const error& refused) { // the others must learn of it: they wait for the card
        mine.failed = 1;
        text = refused.why().message;
    }
    const std::string whole = std::string(reinterpret_cast<const char*>(&mine), sizeof mine) + text;
    const std::vector<Blob> blobs = control.all_gather(std::as_bytes(std::span<const char>(whole)), deadline);
    std::vector<std::string> addresses;
    Blob random;
    SharedCores cores; // of this host
    for (std::size_t each = 0; each < blobs.size(); ++each) {
        NetworkCard card;
        const Blob& blob = blobs[each];
        Fault why{.code = ErrorCode::refused,
                  .rank = static_cast<int>(each),
                  .peer = -1,
                  .operation = "join",
                  .sequence = 0,
                  .message =
                      concat({"rank ", each, " runs another version of the library, or on another kind of host"})};
        if (blob.size() < sizeof card) throw error(why);
        std::memcpy(static_cast<void*>(&card), blob.data(), sizeof card);
        if (card.version != NetworkCard::expected) throw error(why);
        std::string rest(reinterpret_cast<const char*>(blob.data()) + sizeof card, blob.size() - sizeof card);
        if (card.failed != 0) {
            why.message = concat({"rank ", each, ": ", rest});
            throw error(why);
        }
        const auto drawn = std::as_bytes(std::span(card.random));
        random.insert(random.end(), drawn.begin(), drawn.end());
        if (card.host == mine.host) cores.add(card.cores);
        addresses.push_back(std::move(rest));
    }
    JobToken key;
    if constexpr (derives_keys<Control>) key = control.derive_key("unisono2 data", random);
    else key = JobToken::derived_from(std::string_view(reinterpret_cast<const char*>(random.data()), random.size()));
    return std::make_shared<NetworkWorld>(std::move(addresses), key, cores.fewer_than_ranks(),
                                          std::make_unique<ControlOverseer<Control>>(std::move(control)));
}

} // namespace detail
UNISONO_NAMESPACE_END

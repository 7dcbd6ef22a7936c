#pragma once

/// \file
/// Several hosts with several ranks on each: shared memory between ranks of a host, and a network
/// between hosts, chosen per pair of ranks. `Hosts<Tcp>`, `Hosts<Libfabric>`. Include
/// unisono/hosts.hpp, which adds native schedules.
///
/// Groups know their hosts (`group.hosts()`), so the native schedules and reducers are
/// hierarchical: hosts exchange what a single rank per host would send.
///
/// At start-up ranks try to map each other's memory. Those that succeed share a host, regardless of
/// names, containers and network name spaces. UNISONO_HOSTS=a,a,b,b (a name per rank) or the
/// program may divide them further.

#include "unisono/extensions/hosts/world.hpp"
#include "unisono/extensions/network/world.hpp"
#include "unisono/launch/host.hpp"
#include "unisono/transport/shared_memory.hpp"
#include "unisono/transport/shared_memory/join.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN

/// A network for use between hosts: an endpoint over a wire, in a NetworkWorld.
template <class T>
concept network_between_hosts = transport<T> && !T::maps_peers &&
                                std::same_as<typename T::World, detail::NetworkWorld> && requires(const T& constant) {
                                    typename T::Options;
                                    {
                                        constant.shared_world()
                                    } -> std::same_as<const std::shared_ptr<detail::NetworkWorld>&>;
                                };

/// A network that sends without a copy from memory that it knows: `register_once(memory, bytes)`
/// returns that memory, registered as long as it lives.
template <class T>
concept registers_memory = transport<T> && requires(T& t, std::shared_ptr<std::byte> memory, std::size_t bytes) {
    { t.register_once(std::move(memory), bytes) } -> std::same_as<std::shared_ptr<std::byte>>;
};

namespace detail {

/// "hosts_" and the name of the network, for example hosts_libfabric.
template <class Network>
inline constexpr auto hosts_name = [] {
    constexpr std::string_view before = "hosts_";
    std::array<char, before.size() + Network::name.size() + 1> text{}; // ends with 0
    std::copy(Network::name.begin(), Network::name.end(), std::copy(before.begin(), before.end(), text.begin()));
    return text;
}();

} // namespace detail

/// The transport of one rank on one of several hosts. It is made by `join<Hosts<Tcp>>`
/// (unisono/join.hpp) for processes that a launcher has started, or by `run<Hosts<Tcp>>`
/// (group/run.hpp) for threads of this process, which are on one host unless UNISONO_HOSTS says
/// otherwise.
///
/// The ranks of a host see memory from `group.allocate<T>(n)`, and read large messages in it in
/// place. Large messages in other memory are copied once. The network sends from both kinds without
/// a copy.
///
/// Errors: those of SharedMemory and of the network, each with the peer's location: `shared memory
/// of this host`, or its address, interface and connection.
template <network_between_hosts Network>
class Hosts : public Endpoint, private MessageView {
public:
    /// "hosts" over Tcp; "hosts_libfabric" over Libfabric.
    static constexpr std::string_view name = Network::name == "tcp" ? "hosts" : detail::hosts_name<Network>.data();
    static constexpr bool maps_peers = false;
    static constexpr bool spans_hosts = true;
    using World = detail::HostsWorld;
    using Options = HostsOptions<Network>;
    static constexpr std::size_t exchange_bytes = Network::exchange_bytes;
    static constexpr std::size_t chunk_bytes = Network::chunk_bytes;

    Hosts() : Hosts(std::make_shared<World>(1, std::vector<std::string>()), 0) {}
    /// A rank of a world of threads. Errors: refused, bad_input.
    Hosts(const std::shared_ptr<World>& shared, int rank, const Options& options = {})
        : Hosts(shared->places(), SharedMemory(shared->memory_of(rank), shared->places().local_rank(rank)),
                Network(shared->network(), rank, options.network)) {}
    /// A rank whose two halves exist.
    Hosts(detail::HostPlaces places, SharedMemory memory, Network network)
        : Endpoint(network.rank(), network.size(),
                   {.name = name, .lands_from = Network::lands_from, .wants_waits = true, .allocates = true}),
          places_(std::move(places)), memory_(std::move(memory)), network_(std::move(network)) {
        const int here = places_.host_of(rank());
        for (int peer = 0; peer < size(); ++peer)
            local_.push_back(places_.host_of(peer) == here ? places_.local_rank(peer) : elsewhere);
    }

    [[nodiscard]] nanoseconds now() const override { return steady_now(); }

    [[nodiscard]] bool knows_hosts() const override { return true; }
    /// Equal for ranks that share a host: 0 to hosts() - 1, in the order of the hosts' first ranks.
    [[nodiscard]] int host_of(int peer) const override { return places_.host_of(peer); }
    [[nodiscard]] int hosts() const { return places_.hosts(); }
    /// Bytes of messages that this rank has sent to other hosts, without the network's overhead.
    [[nodiscard]] std::uint64_t bytes_to_other_hosts() const { return bytes_to_other_hosts_; }

    bool send(int peer, const Envelope& envelope, const std::byte* data, Token token) override {
        if (const int local = local_of(peer); local != elsewhere) return memory_.send(local, envelope, data, token);
        bytes_to_other_hosts_ += envelope.bytes;
        return network_.send(peer, envelope, data, token);
    }
    /// Messages from other hosts are received directly into `target`; those of this host are read
    /// in place, as always.
    void receive(int peer, const Envelope& expected, Token token, std::byte* target) override {
        if (const int local = local_of(peer); local != elsewhere) memory_.receive(local, expected, token, nullptr);
        else network_.receive(peer, expected, token, target);
    }

    void progress(EndpointSink& sink) override {
        network_.progress(sink);
        if (network_.fault() == nullptr) memory_.progress(sink);
    }

    /// A message in shared memory does not wake a rank that sleeps in the network's wait, so the
    /// rank polls shared memory at growing intervals.
    void idle(std::uint32_t attempt, nanoseconds until) override {
        const bool alone = places_.ranks_of(host_of(rank())).size() == 1;
        if (attempt < few_attempts) waits_since_ = 0;
        else if (!alone) {
            const nanoseconds time = now();
            if (waits_since_ == 0) waits_since_ = time;
            until = std::min(until, time + detail::sleep_after(time - waits_since_));
        }
        network_.idle(attempt, until);
    }

    /// Aborts both halves. Afterwards no rank accesses memory that this rank posted.
    void abort(const Fault& fault) override {
        network_.abort(fault);
        const Fault* const first = network_.fault();
        memory_.abort(first != nullptr ? *first : fault);
    }
    [[nodiscard]] const Fault* fault() const override { return network_.fault(); }

    void waits(const Wait* wait) override { network_.waits(wait); }

    // --- memory ----------------------------------------------------------------------------------

    /// True if the ranks of this host see these bytes.
    [[nodiscard]] bool reaches(const void* data, std::size_t bytes) const override {
        return memory_.reaches(data, bytes);
    }
    /// Memory that the ranks of this host see as long as its owner lives. It is not cleared. It is
    /// registered once with a network that needs it. Errors: refused.
    [[nodiscard]] std::shared_ptr<std::byte> allocate(std::size_t bytes) override {
        std::shared_ptr<std::byte> made = memory_.allocate(bytes);
        if constexpr (registers_memory<Network>) return network_.register_once(std::move(made), bytes);
        else return made;
    }

    // --- diagnosis: called rarely ---

    [[nodiscard]] Presence presence(int peer) override {
        const int local = local_of(peer);
        return local != elsewhere ? memory_.presence(local) : network_.presence(peer);
    }
    [[nodiscard]] MessageView* messages() override { return this; }
    [[nodiscard]] bool awaits(int peer) const override {
        const int local = local_of(peer);
        return local != elsewhere ? memory_.has_under_way(local) : network_.awaits(peer);
    }
    [[nodiscard]] std::string describe(int peer) const override {
        return local_of(peer) != elsewhere ? "shared memory of this host" : network_.describe(peer);
    }
    [[nodiscard]] const Signature* early_signature(int peer, std::uint64_t context, std::uint32_t sequence) override {
        const int local = local_of(peer);
        return local != elsewhere ? memory_.unasked_signature(local, context, sequence)
                                  : network_.early_signature(peer, context, sequence);
    }

    /// The two halves, for figures that only they have.
    [[nodiscard]] const SharedMemory& memory() const { return memory_; }
    [[nodiscard]] const Network& network() const { return network_; }

    /// The world of processes that share this control plane, which then belongs to the world.
    /// Collective. Errors, the same on all ranks: those of the network's `join`, and of
    /// `join_shared_memory`.
    template <control_plane Control>
    [[nodiscard]] static Hosts join(Control control, nanoseconds deadline, const Options& options);

private:
    static constexpr int elsewhere = -1;
    static constexpr std::uint32_t few_attempts = 8; ///< attempts in which the network does not sleep

    [[nodiscard]] int local_of(int peer) const { return local_[static_cast<std::size_t>(peer)]; }

    detail::HostPlaces places_;
    detail::List<int> local_; ///< a rank's number on this host, or elsewhere
    SharedMemory memory_;
    Network network_; ///< destroyed first: it tells why
    std::uint64_t bytes_to_other_hosts_ = 0;
    nanoseconds waits_since_ = 0; ///< 0: this wait has just begun
};

namespace detail {

// Processes that share a control plane find out which of them share a host, and become the ranks
// of a world of hosts.
//
// No name tells whether two processes share memory: containers of one machine may not, those of
// one pod may, and machines started from one image may have equal names. So each rank offers its
// peers a page that holds a random number; a rank that reads that number can share memory with it.

/// Each process's message to the others: the address of its page, followed by its given host name,
/// or the reason why it cannot join.
struct HostCard {
    static constexpr std::uint64_t expected = 0x3174736f68696e75;

    std::uint64_t version = expected;
    /// Equal for processes whose process numbers are comparable; else the number is not even tried.
    std::uint64_t processes = 0;
    std::array<std::uint8_t, JobToken::bytes> token = {};
    std::int32_t process = 0;
    std::int32_t file = -1;
    std::uint64_t failed = 0;
};

/// True if the page that the card names can be mapped, and has the card's random number.
inline bool shares_memory(const HostCard& card) {
    try {
        const SharedSegment page = SharedSegment::open(concat({"/proc/", card.process, "/fd/", card.file}));
        return page.bytes() == SharedLayout::page &&
               std::memcmp(page.base(), card.token.data(), card.token.size()) == 0;
    } catch (const error&) {
        return false;
    }
}

/// Finds the ranks' hosts, by random numbers that they read in each other's memory. Collective.
/// Errors, the same on all ranks: refused, with the wrong option of a rank.
template <control_plane Control>
HostPlaces find_hosts(Control& control, nanoseconds deadline, const std::string& name, const std::string& failed) {
    HostCard mine;
    mine.processes = process_space();
    mine.process = ::getpid();
    mine.failed = failed.empty() ? 0 : 1;
    mine.token = JobToken::random().value();
    std::optional<SharedSegment> page;
    try {
        page = SharedSegment::create(SharedLayout::page);
        std::memcpy(page->base(), mine.token.data(), mine.token.size());
        mine.file = page->file();
    } catch (const error&) { // then this rank is alone on its host
    }
    const auto cards = exchange_cards(control, deadline, mine, failed.empty() ? name : failed);
    const auto me = static_cast<std::size_t>(control.rank());
    std::int32_t first = control.rank(); // the first rank whose page this one can read
    for (std::size_t rank = 0; rank < me; ++rank) {
        const auto& [card, its_name] = cards[rank];
        const bool may = card.processes == mine.processes && card.file >= 0 && mine.file >= 0 && its_name == name;
        if (!may || !shares_memory(card)) continue;
        first = static_cast<std::int32_t>(rank);
        break;
    }
    const std::string found(reinterpret_cast<const char*>(&first), sizeof first);
    const std::vector<std::string> all = gather_texts(control, found, deadline);
    std::vector<int> hosts;
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
        std::int32_t leader = static_cast<std::int32_t>(rank);
        if (all[rank].size() == sizeof leader) std::memcpy(&leader, all[rank].data(), sizeof leader);
        const bool leads = leader >= 0 && static_cast<std::size_t>(leader) < rank &&
                           hosts[static_cast<std::size_t>(leader)] == leader; // else it reads a page that others do not
        hosts.push_back(leads ? leader : static_cast<int>(rank));
    }
    return HostPlaces(hosts);
}

/// The shared memory of this rank's host. Collective over the job. Errors, the same on all ranks:
/// those of the first rank that has one.
template <control_plane Control>
std::shared_ptr<SharedMemoryWorld> join_host(Control& control, nanoseconds deadline, const HostPlaces& places,
                                             std::size_t arena_bytes) {
    const std::vector<int>& ranks = places.ranks_of(places.host_of(control.rank()));
    int gathered = 0;
    const auto gather = [&](const std::string& mine) {
        ++gathered;
        const std::vector<std::string> all = gather_texts(control, mine, deadline);
        std::vector<std::string> ours;
        ours.reserve(ranks.size());
        for (const int rank : ranks) ours.push_back(all[static_cast<std::size_t>(rank)]);
        return ours;
    };
    std::shared_ptr<SharedMemoryWorld> made;
    std::string failed;
    try {
        made =
            join_shared_memory(places.local_rank(control.rank()), static_cast<int>(ranks.size()), gather, arena_bytes);
    } catch (const error& refused) { // ranks of other hosts gather as often as usual
        if (control.first_fault() != nullptr) throw;
        failed = refused.why().message;
        const int who = refused.rank(); // a rank of this host; the error must name it by its number in the world
        const std::string before = concat({"rank ", who, ": "});
        if (who >= 0 && failed.starts_with(before)) failed.erase(0, before.size());
        if (who >= 0 && who != places.local_rank(control.rank())) failed.clear();
        for (int missed = 2 - gathered; missed > 0; --missed) static_cast<void>(gather({}));
    }
    const std::vector<std::string> failures = gather_texts(control, failed, deadline);
    for (std::size_t rank = 0; rank < failures.size(); ++rank)
        if (!failures[rank].empty()) refuse_join(rank, ": " + failures[rank]);
    if (made == nullptr)
        refuse_join(static_cast<std::size_t>(control.rank()), ": has no memory in common with its host's ranks");
    return made;
}

/// The hosts of ranks with given host names (see `host_name_of`). Collective. Errors: as
/// `find_hosts`.
template <control_plane Control>
HostPlaces find_named_hosts(Control& control, nanoseconds deadline, const std::vector<std::string>& given,
                            const std::string& own = {}) {
    std::string own_name;
    std::string failed;
    try {
        own_name = host_name_of(control.rank(), control.size(), given, own, Environment::of_process());
    } catch (const error& refused) { // all ranks must learn of it
        failed = refused.why().message;
    }
    return find_hosts(control, deadline, own_name, failed);
}

} // namespace detail

/// True if all ranks can share memory, so that `SharedMemory` can join them: for programs that
/// choose their transport at run time. `names` or UNISONO_HOSTS separate ranks, as for `Hosts`.
/// Collective over the job. Cost: two all_gathers of the control plane. Errors, the same on all
/// ranks: refused, with the rank; the job's first fault.
template <control_plane Control>
[[nodiscard]] bool share_one_host(Control& control, nanoseconds deadline, const std::vector<std::string>& names = {}) {
    return detail::find_named_hosts(control, deadline, names).hosts() == 1;
}

template <network_between_hosts Network>
template <control_plane Control>
Hosts<Network> Hosts<Network>::join(Control control, nanoseconds deadline, const Options& options) {
    detail::HostPlaces places = detail::find_named_hosts(control, deadline, options.hosts, options.host);
    const auto world = detail::join_host(control, deadline, places, options.arena_bytes);
    const int local_rank = places.local_rank(control.rank());
    Network network = Network::join(std::move(control), deadline, options.network);
    world->set_overseer(new detail::NetworkOverseer(network.shared_world()));
    return {std::move(places), SharedMemory(world, local_rank), std::move(network)};
}

UNISONO_NAMESPACE_END

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
#include "unisono/transport/shared_memory.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

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

/// The transport of one rank on one of several hosts. It is made by `join<Hosts<Tcp>>` (join.hpp)
/// for processes that a launcher has started, or by `run<Hosts<Tcp>>` (group/run.hpp) for threads
/// of this process, which are on one host unless UNISONO_HOSTS says otherwise.
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
    /// `join_shared_memory`. Defined in hosts/join.hpp.
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

UNISONO_NAMESPACE_END

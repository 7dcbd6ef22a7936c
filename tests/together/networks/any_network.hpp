// Networks behind virtual functions, so that expensive code is compiled once for all: one transport
// for the tests, whatever carries its messages.
#pragma once

#include <unisono/collective/collective.hpp>
#include <unisono/collective/native_on_hosts.hpp>
#include <unisono/extensions/tcp/tcp.hpp>
#include <unisono/group/run.hpp>

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace test {

using unisono::Endpoint;

/// A network for worlds of threads of this process, or one whose ranks are processes. For
/// processes, `join` returns this process's part, and `ranks` is their number.
class NetworkKind {
public:
    /// The state that the threads of a world share.
    struct World {
        std::function<std::unique_ptr<Endpoint>(int rank)> endpoint;
        std::function<void(int rank, const unisono::Fault& fault)> abort;
        std::function<const unisono::Fault*()> first_fault;
    };
    std::string name;
    std::function<World(int size)> world = {};
    std::function<std::unique_ptr<Endpoint>()> join = {};
    int ranks = 0;

    template <class Transport>
    static NetworkKind of_threads(const std::string& name) {
        return {.name = name, .world = [](int size) {
                    const auto shared = std::make_shared<typename Transport::World>(size);
                    return World{.endpoint = [=](int rank) { return std::make_unique<Transport>(shared, rank); },
                                 .abort = [=](int rank, const unisono::Fault& fault) { shared->abort(rank, fault); },
                                 .first_fault = [=] { return shared->first_fault(); }};
                }};
    }
};

/// All networks under test, and the one of later worlds.
inline std::vector<NetworkKind>& network_kinds() {
    static std::vector<NetworkKind> all;
    return all;
}
inline const NetworkKind* network = nullptr;

/// The transport: it uses `network` as it is when the world begins.
class AnyNetwork : public Endpoint {
public:
    static constexpr std::string_view name = "any network";
    static constexpr bool maps_peers = false;
    static constexpr bool spans_hosts = true;
    static constexpr std::size_t exchange_bytes = unisono::Tcp::exchange_bytes;
    static constexpr std::size_t chunk_bytes = unisono::Tcp::chunk_bytes;

    class World {
    public:
        explicit World(int size) : size_(size), world_(network->world(size)) {}
        [[nodiscard]] int size() const { return size_; }
        void abort(int rank, const unisono::Fault& fault) { world_.abort(rank, fault); }
        [[nodiscard]] const unisono::Fault* first_fault() const { return world_.first_fault(); }
        [[nodiscard]] std::unique_ptr<Endpoint> endpoint(int rank) const { return world_.endpoint(rank); }

    private:
        int size_;
        NetworkKind::World world_;
    };

    AnyNetwork() : AnyNetwork(nullptr) { throw std::logic_error("the tests make no such world"); }
    AnyNetwork(const std::shared_ptr<World>& shared, int rank) : AnyNetwork(shared->endpoint(rank)) {}
    explicit AnyNetwork(std::unique_ptr<Endpoint> inner)
        : Endpoint(inner == nullptr ? 0 : inner->rank(), inner == nullptr ? 1 : inner->size(),
                   {.name = name, .wants_waits = true}),
          inner_(std::move(inner)) {}

    bool send(int peer, const unisono::Envelope& envelope, const std::byte* data, unisono::Token token) override {
        return inner_->send(peer, envelope, data, token);
    }
    void receive(int peer, const unisono::Envelope& expected, unisono::Token token, std::byte* target) override {
        inner_->receive(peer, expected, token, target);
    }
    void progress(unisono::EndpointSink& sink) override { inner_->progress(sink); }
    void idle(std::uint32_t attempt, unisono::nanoseconds until) override { inner_->idle(attempt, until); }
    [[nodiscard]] unisono::nanoseconds now() const override { return inner_->now(); }
    void abort(const unisono::Fault& fault) override { inner_->abort(fault); }
    [[nodiscard]] const unisono::Fault* fault() const override { return inner_->first_fault(); }
    [[nodiscard]] unisono::Presence presence(int peer) override { return inner_->presence(peer); }
    void waits(const unisono::Wait* wait) override { inner_->waits(wait); }
    [[nodiscard]] unisono::MessageView* messages() override { return inner_->messages(); }
    [[nodiscard]] std::shared_ptr<std::byte> allocate(std::size_t bytes) override { return inner_->allocate(bytes); }
    [[nodiscard]] bool knows_hosts() const override { return true; }
    [[nodiscard]] int host_of(int peer) const override { // if the network does not know, each rank has its own
        return inner_->knows_hosts() ? inner_->host_of(peer) : peer;
    }

    // --- for the suites
    // ------------------------------------------------------------------------------

    static inline int worlds_to_try = 1; ///< ranks of the next world

    /// Runs a world of the given number of ranks: threads, or this process's part of it.
    template <class Body>
    static void run_ranks(int ranks, Body body, const unisono::RunOptions& options) {
        if (!network->join) return unisono::run<AnyNetwork>(ranks, body, options);
        unisono::Group<AnyNetwork> world{AnyNetwork(network->join())};
        world.set_timeout(options.timeout);
        body(world);
    }
    /// Gives every rank all ranks' results, if they have no memory in common.
    template <class World, class Results>
    static void share(World& world, Results& results) {
        if (!network->join) return;
        using Result = typename Results::value_type;
        const auto me = static_cast<std::size_t>(world.rank());
        unisono::all_gather(world, std::span<const Result>(&results[me], 1),
                            std::span<Result>(results.data(), static_cast<std::size_t>(world.size())));
    }

private:
    std::unique_ptr<Endpoint> inner_;
};
static_assert(unisono::transport<AnyNetwork> && unisono::knows_hosts<AnyNetwork>);

} // namespace test

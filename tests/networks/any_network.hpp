// Networks behind virtual functions, so that expensive code is compiled once for all: one transport
// for the tests, whatever carries its messages.
#pragma once

#include <unisono/collective/collective.hpp>
#include <unisono/collective/native_on_hosts.hpp>
#include <unisono/extensions/any/any.hpp>
#include <unisono/extensions/tcp/tcp.hpp>
#include <unisono/group/run.hpp>

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace test {

/// One rank's part of a network.
class NetworkEndpoint {
public:
    NetworkEndpoint() = default;
    NetworkEndpoint(const NetworkEndpoint&) = delete;
    NetworkEndpoint& operator=(const NetworkEndpoint&) = delete;
    virtual ~NetworkEndpoint() = default;

    [[nodiscard]] virtual int rank() const = 0;
    [[nodiscard]] virtual int size() const = 0;
    virtual bool post_send(int peer, const unisono::Envelope& envelope, const std::byte* data,
                           unisono::Token token) = 0;
    virtual void post_receive(int peer, const unisono::Tag& tag, unisono::Token token) = 0;
    virtual void progress(unisono::detail::SinkReference& sink) = 0;
    virtual void idle(std::uint32_t attempt, unisono::nanoseconds until) = 0;
    virtual void abort(const unisono::Fault& fault) = 0;
    [[nodiscard]] virtual const unisono::Fault* first_fault() const = 0;
    virtual void waits(const unisono::Wait& wait) = 0;
    virtual void waits_no_more() = 0;
    [[nodiscard]] virtual bool awaits(int peer) const = 0;
    [[nodiscard]] virtual bool has_left(int peer) = 0;
    [[nodiscard]] virtual bool has_died(int peer) = 0;
    [[nodiscard]] virtual std::string describe(int peer) const = 0;
    [[nodiscard]] virtual const unisono::Signature* early_signature(int peer, std::uint64_t context,
                                                                    std::uint32_t sequence) = 0;
    [[nodiscard]] virtual int host_of(int peer) const = 0;
    [[nodiscard]] virtual std::shared_ptr<std::byte> allocate(std::size_t bytes) = 0;
};

template <unisono::transport Transport>
class NetworkEndpointOf final : public NetworkEndpoint {
public:
    explicit NetworkEndpointOf(Transport endpoint) : endpoint_(std::move(endpoint)) {}
    [[nodiscard]] int rank() const override { return endpoint_.rank(); }
    [[nodiscard]] int size() const override { return endpoint_.size(); }
    bool post_send(int peer, const unisono::Envelope& envelope, const std::byte* data, unisono::Token token) override {
        return endpoint_.post_send(peer, envelope, data, token);
    }
    void post_receive(int peer, const unisono::Tag& tag, unisono::Token token) override {
        endpoint_.post_receive(peer, tag, token);
    }
    void progress(unisono::detail::SinkReference& sink) override { endpoint_.progress(sink); }
    void idle(std::uint32_t attempt, unisono::nanoseconds until) override { endpoint_.idle(attempt, until); }
    void abort(const unisono::Fault& fault) override { endpoint_.abort(fault); }
    [[nodiscard]] const unisono::Fault* first_fault() const override { return endpoint_.first_fault(); }
    void waits(const unisono::Wait& wait) override { endpoint_.waits(wait); }
    void waits_no_more() override { endpoint_.waits_no_more(); }
    [[nodiscard]] bool awaits(int peer) const override { return endpoint_.awaits(peer); }
    [[nodiscard]] bool has_left(int peer) override { return endpoint_.has_left(peer); }
    [[nodiscard]] bool has_died(int peer) override { return endpoint_.has_died(peer); }
    [[nodiscard]] std::string describe(int peer) const override { return endpoint_.describe(peer); }
    [[nodiscard]] const unisono::Signature* early_signature(int peer, std::uint64_t context,
                                                            std::uint32_t sequence) override {
        return endpoint_.early_signature(peer, context, sequence);
    }
    [[nodiscard]] int host_of(int peer) const override {
        if constexpr (unisono::knows_hosts<Transport>) return endpoint_.host_of(peer);
        else return peer; // each network has its own: it is not used
    }
    [[nodiscard]] std::shared_ptr<std::byte> allocate(std::size_t bytes) override {
        if constexpr (requires { endpoint_.allocate(bytes); }) return endpoint_.allocate(bytes);
        else return unisono::detail::memory_for_rank(endpoint_.rank(), bytes);
    }

private:
    Transport endpoint_;
};

/// A network for worlds of threads of this process, or one whose ranks are processes. For
/// processes, `join` returns this process's part, and `ranks` is their number.
class NetworkKind {
public:
    /// The state that the threads of a world share.
    struct World {
        std::function<std::unique_ptr<NetworkEndpoint>(int rank)> endpoint;
        std::function<void(int rank, const unisono::Fault& fault)> abort;
        std::function<const unisono::Fault*()> first_fault;
    };
    std::string name;
    std::function<World(int size)> world = {};
    std::function<std::unique_ptr<NetworkEndpoint>()> join = {};
    int ranks = 0;

    template <class Transport>
    static NetworkKind of_threads(const std::string& name) {
        return {.name = name, .world = [](int size) {
                    const auto shared = std::make_shared<typename Transport::World>(size);
                    return World{.endpoint =
                                     [=](int rank) {
                                         return std::make_unique<NetworkEndpointOf<Transport>>(Transport(shared, rank));
                                     },
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
class AnyNetwork {
public:
    static constexpr std::string_view name = "any network";
    static constexpr bool maps_peers = false;
    static constexpr std::size_t exchange_bytes = unisono::Tcp::exchange_bytes;
    static constexpr std::size_t chunk_bytes = unisono::Tcp::chunk_bytes;

    class World {
    public:
        explicit World(int size) : size_(size), world_(network->world(size)) {}
        [[nodiscard]] int size() const { return size_; }
        void abort(int rank, const unisono::Fault& fault) { world_.abort(rank, fault); }
        [[nodiscard]] const unisono::Fault* first_fault() const { return world_.first_fault(); }
        [[nodiscard]] std::unique_ptr<NetworkEndpoint> endpoint(int rank) const { return world_.endpoint(rank); }

    private:
        int size_;
        NetworkKind::World world_;
    };

    AnyNetwork() { throw std::logic_error("the tests make no such world"); }
    AnyNetwork(const std::shared_ptr<World>& shared, int rank) : endpoint_(shared->endpoint(rank)) {}
    explicit AnyNetwork(std::unique_ptr<NetworkEndpoint> endpoint) : endpoint_(std::move(endpoint)) {}

    [[nodiscard]] int rank() const { return endpoint_->rank(); }
    [[nodiscard]] int size() const { return endpoint_->size(); }
    [[nodiscard]] unisono::nanoseconds now() const { return unisono::steady_now(); }
    bool post_send(int peer, const unisono::Envelope& envelope, const std::byte* data, unisono::Token token) {
        return endpoint_->post_send(peer, envelope, data, token);
    }
    void post_receive(int peer, const unisono::Tag& tag, unisono::Token token) {
        endpoint_->post_receive(peer, tag, token);
    }
    template <class Sink>
    void progress(Sink& sink) {
        unisono::detail::SinkReference reference(sink);
        endpoint_->progress(reference);
    }
    void idle(std::uint32_t attempt, unisono::nanoseconds until) { endpoint_->idle(attempt, until); }
    void abort(const unisono::Fault& fault) { endpoint_->abort(fault); }
    [[nodiscard]] const unisono::Fault* first_fault() const { return endpoint_->first_fault(); }
    void waits(const unisono::Wait& wait) { endpoint_->waits(wait); }
    void waits_no_more() { endpoint_->waits_no_more(); }
    [[nodiscard]] bool awaits(int peer) const { return endpoint_->awaits(peer); }
    [[nodiscard]] bool has_left(int peer) { return endpoint_->has_left(peer); }
    [[nodiscard]] bool has_died(int peer) { return endpoint_->has_died(peer); }
    [[nodiscard]] std::string describe(int peer) const { return endpoint_->describe(peer); }
    [[nodiscard]] const unisono::Signature* early_signature(int peer, std::uint64_t context, std::uint32_t sequence) {
        return endpoint_->early_signature(peer, context, sequence);
    }
    [[nodiscard]] int host_of(int peer) const { return endpoint_->host_of(peer); }
    [[nodiscard]] std::shared_ptr<std::byte> allocate(std::size_t bytes) { return endpoint_->allocate(bytes); }

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
    std::unique_ptr<NetworkEndpoint> endpoint_;
};
static_assert(unisono::transport<AnyNetwork> && unisono::knows_hosts<AnyNetwork>);

} // namespace test

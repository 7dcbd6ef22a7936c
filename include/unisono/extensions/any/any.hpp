#pragma once

/// \file
/// A transport for programs that choose theirs at run time: one type for several transports. It is
/// not part of the umbrella.
///
/// It holds one of the transports that map their peers' memory. So the direct schedules do not
/// change: they combine data in the peers' buffers and read flags without a virtual call. Measured
/// with two threads: all_reduce of 8 bytes takes 20 ns (6 %) longer, of 1 MiB 1 %. A message costs
/// two virtual calls.
///
/// Absent on purpose: `Simulated`. Its time passes differently, so a group must know it at compile
/// time, and its ranks share no memory. A program that simulates names it.

#include "unisono/core/memory.hpp"
#include "unisono/transport/in_process.hpp"
#include "unisono/transport/shared_memory.hpp"
#include "unisono/transport/shared_memory/join.hpp"

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

UNISONO_NAMESPACE_BEGIN

/// A transport that AnyTransport can hold.
template <class T>
concept mapping_transport = maps_peers<T> && announces<T> && sees_leaving<T>;

namespace detail {

/// A sink behind two function pointers.
class SinkReference {
public:
    template <class Sink>
    explicit SinkReference(Sink& sink)
        : sink_(&sink), sent_([](void* to, Token token) { static_cast<Sink*>(to)->sent(token); }),
          received_([](void* to, Token token, const Envelope& envelope, const std::byte* data) {
              static_cast<Sink*>(to)->received(token, envelope, data);
          }) {}
    void sent(Token token) { sent_(sink_, token); }
    void received(Token token, const Envelope& envelope, const std::byte* data) {
        received_(sink_, token, envelope, data);
    }

private:
    void* sink_;
    void (*sent_)(void*, Token);
    void (*received_)(void*, Token, const Envelope&, const std::byte*);
};

/// A transport's endpoint behind virtual functions. It answers for capabilities that the transport
/// lacks.
class AnyEndpoint {
public:
    AnyEndpoint() = default;
    AnyEndpoint(const AnyEndpoint&) = delete;
    AnyEndpoint& operator=(const AnyEndpoint&) = delete;
    virtual ~AnyEndpoint() = default;

    [[nodiscard]] virtual std::string_view name() const = 0;
    [[nodiscard]] virtual nanoseconds now() const = 0;
    virtual bool post_send(int peer, const Envelope& envelope, const std::byte* data, Token token) = 0;
    virtual void post_receive(int peer, const Tag& tag, Token token) = 0;
    virtual void progress(SinkReference& sink) = 0;
    virtual void idle(std::uint32_t attempt, nanoseconds until) = 0;
    [[nodiscard]] virtual bool one_sleeps() const = 0;
    virtual void wake(int peer) = 0;
    virtual void abort(const Fault& fault) = 0;
    [[nodiscard]] virtual const Fault* first_fault() const = 0;

    [[nodiscard]] virtual std::ptrdiff_t shift(int peer) const = 0;
    virtual Announcements announcements(std::uint64_t context, int size) = 0;
    virtual MappedBoard mapped_board(std::uint64_t context, int size) = 0;
    virtual bool begin_touching() = 0;
    virtual void end_touching() = 0;
    [[nodiscard]] virtual Mapped mapped() const = 0;

    [[nodiscard]] virtual bool reaches(const void* data, std::size_t bytes) const = 0;
    [[nodiscard]] virtual std::shared_ptr<std::byte> allocate(std::size_t bytes) = 0;

    [[nodiscard]] virtual bool has_left(int peer) const = 0;
    [[nodiscard]] virtual bool has_died(int peer) = 0;
    [[nodiscard]] virtual int offer_board() = 0;
    virtual void give_board(int ranks) = 0;
    [[nodiscard]] virtual std::uint64_t with_board(std::uint64_t context, int board) const = 0;
    virtual void drop_board(std::uint64_t context) noexcept = 0;
    [[nodiscard]] virtual bool wants_waits() const = 0;
    virtual void look() = 0;
    virtual void waits(const Wait& wait) = 0;
    virtual void waits_no_more() = 0;
};

template <mapping_transport Transport>
class AnyEndpointOf final : public AnyEndpoint {
public:
    explicit AnyEndpointOf(Transport endpoint) : endpoint_(std::move(endpoint)) {}

    [[nodiscard]] std::string_view name() const override { return Transport::name; }
    [[nodiscard]] nanoseconds now() const override { return endpoint_.now(); }
    bool post_send(int peer, const Envelope& envelope, const std::byte* data, Token token) override {
        if constexpr (sends_at_once<Transport>) {
            return endpoint_.post_send(peer, envelope, data, token);
        } else {
            endpoint_.post_send(peer, envelope, data, token);
            return false;
        }
    }
    void post_receive(int peer, const Tag& tag, Token token) override { endpoint_.post_receive(peer, tag, token); }
    void progress(SinkReference& sink) override { endpoint_.progress(sink); }
    void idle(std::uint32_t attempt, nanoseconds until) override { endpoint_.idle(attempt, until); }
    [[nodiscard]] bool one_sleeps() const override {
        if constexpr (wakes_peers<Transport>) return endpoint_.one_sleeps();
        else return false;
    }
    void wake([[maybe_unused]] int peer) override {
        if constexpr (wakes_peers<Transport>) endpoint_.wake(peer);
    }
    void abort(const Fault& fault) override { endpoint_.abort(fault); }
    [[nodiscard]] const Fault* first_fault() const override { return endpoint_.first_fault(); }

    [[nodiscard]] std::ptrdiff_t shift(int peer) const override { return endpoint_.shift(peer); }
    Announcements announcements(std::uint64_t context, int size) override {
        return endpoint_.announcements(context, size);
    }
    MappedBoard mapped_board(std::uint64_t context, int size) override { return endpoint_.mapped_board(context, size); }
    bool begin_touching() override { return endpoint_.begin_touching(); }
    void end_touching() override { endpoint_.end_touching(); }
    [[nodiscard]] Mapped mapped() const override { return endpoint_.mapped(); }

    [[nodiscard]] bool reaches([[maybe_unused]] const void* data, [[maybe_unused]] std::size_t bytes) const override {
        if constexpr (bounces_memory<Transport>) return endpoint_.reaches(data, bytes);
        else return true;
    }
    [[nodiscard]] std::shared_ptr<std::byte> allocate(std::size_t bytes) override {
        if constexpr (allocates<Transport>) return endpoint_.allocate(bytes);
        else return memory_for_rank(endpoint_.rank(), bytes);
    }

    [[nodiscard]] bool has_left(int peer) const override { return endpoint_.has_left(peer); }
    [[nodiscard]] bool has_died([[maybe_unused]] int peer) override {
        if constexpr (sees_deaths<Transport>) return endpoint_.has_died(peer);
        else return false;
    }
    [[nodiscard]] int offer_board() override {
        if constexpr (gives_boards<Transport>) return endpoint_.offer_board();
        else return 0; // there is always room
    }
    void give_board([[maybe_unused]] int ranks) override {
        if constexpr (gives_boards<Transport>) endpoint_.give_board(ranks);
    }
    [[nodiscard]] std::uint64_t with_board(std::uint64_t context, [[maybe_unused]] int board) const override {
        if constexpr (gives_boards<Transport>) return endpoint_.with_board(context, board);
        else return context;
    }
    void drop_board([[maybe_unused]] std::uint64_t context) noexcept override {
        if constexpr (drops_boards<Transport>) endpoint_.drop_board(context);
    }
    [[nodiscard]] bool wants_waits() const override { return reports_waits<Transport>; }
    void look() override {
        if constexpr (looks_for_faults<Transport>) endpoint_.look();
    }
    void waits([[maybe_unused]] const Wait& wait) override {
        if constexpr (reports_waits<Transport>) endpoint_.waits(wait);
    }
    void waits_no_more() override {
        if constexpr (reports_waits<Transport>) endpoint_.waits_no_more();
    }

private:
    Transport endpoint_;
};

} // namespace detail

/// The common state of a world's ranks, in one process or in those forked from it. `transport`:
/// "in_process" or "shared_memory".
/// Errors: bad_input for another name; those of that transport's world.
class AnyWorld {
public:
    explicit AnyWorld(int size, std::string_view transport = InProcess::name);

    [[nodiscard]] int size() const { return world_->size(); }
    void abort(int rank, const Fault& fault) { world_->abort(rank, fault); }
    [[nodiscard]] const Fault* first_fault() const { return world_->first_fault(); }
    [[nodiscard]] bool has_left(int rank) const { return world_->has_left(rank); }
    [[nodiscard]] bool spans_processes() const { return world_->spans_processes(); }
    [[nodiscard]] std::unique_ptr<detail::AnyEndpoint> endpoint(int rank) const { return world_->endpoint(rank); }

private:
    class World {
    public:
        World() = default;
        World(const World&) = delete;
        World& operator=(const World&) = delete;
        virtual ~World() = default;
        [[nodiscard]] virtual int size() const = 0;
        virtual void abort(int rank, const Fault& fault) = 0;
        [[nodiscard]] virtual const Fault* first_fault() const = 0;
        [[nodiscard]] virtual bool has_left(int rank) const = 0;
        [[nodiscard]] virtual bool spans_processes() const = 0;
        [[nodiscard]] virtual std::unique_ptr<detail::AnyEndpoint> endpoint(int rank) const = 0;
    };
    template <class Transport>
    class WorldOf final : public World {
    public:
        explicit WorldOf(int size) : shared_(std::make_shared<typename Transport::World>(size)) {}
        [[nodiscard]] int size() const override { return shared_->size(); }
        void abort(int rank, const Fault& fault) override { shared_->abort(rank, fault); }
        [[nodiscard]] const Fault* first_fault() const override { return shared_->first_fault(); }
        [[nodiscard]] bool has_left(int rank) const override { return shared_->has_left(rank); }
        [[nodiscard]] bool spans_processes() const override {
            return requires { requires Transport::World::spans_processes; };
        }
        [[nodiscard]] std::unique_ptr<detail::AnyEndpoint> endpoint(int rank) const override {
            return std::make_unique<detail::AnyEndpointOf<Transport>>(Transport(shared_, rank));
        }

    private:
        std::shared_ptr<typename Transport::World> shared_;
    };

    std::unique_ptr<World> world_;
};

inline AnyWorld::AnyWorld(int size, std::string_view transport) {
    if (transport == InProcess::name) world_ = std::make_unique<WorldOf<InProcess>>(size);
    else if (transport == SharedMemory::name) world_ = std::make_unique<WorldOf<SharedMemory>>(size);
    else
        refuse_input(
            {"no transport is called '", transport, "'; expected ", InProcess::name, " or ", SharedMemory::name});
}

/// The transport of one rank, of any of these types. It is made from another transport, or by
/// `run<AnyTransport>(name, ranks, body)` or `join<AnyTransport>()` (any.hpp).
class AnyTransport {
public:
    static constexpr std::string_view name = "any";
    static constexpr bool maps_peers = true;
    static constexpr bool bounces = true; ///< if the transport that it holds does
    using World = AnyWorld;

    AnyTransport() : AnyTransport(InProcess()) {}
    /// Takes an endpoint over.
    template <mapping_transport Transport>
        requires(!std::same_as<Transport, AnyTransport>)
    explicit AnyTransport(Transport endpoint)
        : rank_(endpoint.rank()), size_(endpoint.size()),
          endpoint_(std::make_unique<detail::AnyEndpointOf<Transport>>(std::move(endpoint))) {}
    AnyTransport(const std::shared_ptr<AnyWorld>& world, int rank)
        : rank_(rank), size_(world->size()), endpoint_(world->endpoint(rank)) {}

    /// The world of processes that share a control plane: SharedMemory (see there), or InProcess
    /// for a single process.
    template <control_plane Control>
    [[nodiscard]] static AnyTransport join(Control control, nanoseconds deadline, std::size_t arena_bytes = 0) {
        if (control.size() == 1) return {};
        return AnyTransport(SharedMemory::join(std::move(control), deadline, arena_bytes));
    }

    /// The name of the transport that it holds.
    [[nodiscard]] std::string_view actual_name() const { return endpoint_->name(); }

    [[nodiscard]] int rank() const { return rank_; }
    [[nodiscard]] int size() const { return size_; }
    [[nodiscard]] nanoseconds now() const { return endpoint_->now(); }
    bool post_send(int peer, const Envelope& envelope, const std::byte* data, Token token) {
        return endpoint_->post_send(peer, envelope, data, token);
    }
    void post_receive(int peer, const Tag& tag, Token token) { endpoint_->post_receive(peer, tag, token); }
    template <class Sink>
    void progress(Sink& sink) {
        detail::SinkReference reference(sink);
        endpoint_->progress(reference);
    }
    void idle(std::uint32_t attempt, nanoseconds until) { endpoint_->idle(attempt, until); }
    [[nodiscard]] bool one_sleeps() const { return endpoint_->one_sleeps(); }
    void wake(int peer) { endpoint_->wake(peer); }
    void abort(const Fault& fault) { endpoint_->abort(fault); }
    [[nodiscard]] const Fault* first_fault() const { return endpoint_->first_fault(); }

    [[nodiscard]] std::ptrdiff_t shift(int peer) const { return endpoint_->shift(peer); }
    detail::Announcements announcements(std::uint64_t context, int size) {
        return endpoint_->announcements(context, size);
    }
    detail::MappedBoard mapped_board(std::uint64_t context, int size) { return endpoint_->mapped_board(context, size); }
    bool begin_touching() { return endpoint_->begin_touching(); }
    void end_touching() { endpoint_->end_touching(); }
    [[nodiscard]] detail::Mapped mapped() const { return endpoint_->mapped(); }

    [[nodiscard]] bool reaches(const void* data, std::size_t bytes) const { return endpoint_->reaches(data, bytes); }
    [[nodiscard]] std::shared_ptr<std::byte> allocate(std::size_t bytes) { return endpoint_->allocate(bytes); }

    [[nodiscard]] bool has_left(int peer) const { return endpoint_->has_left(peer); }
    [[nodiscard]] bool has_died(int peer) { return endpoint_->has_died(peer); }
    [[nodiscard]] int offer_board() { return endpoint_->offer_board(); }
    void give_board(int ranks) { endpoint_->give_board(ranks); }
    [[nodiscard]] std::uint64_t with_board(std::uint64_t context, int board) const {
        return endpoint_->with_board(context, board);
    }
    void drop_board(std::uint64_t context) noexcept { endpoint_->drop_board(context); }

    [[nodiscard]] bool wants_waits() const { return endpoint_->wants_waits(); }
    void look() { endpoint_->look(); }
    void waits(const Wait& wait) { endpoint_->waits(wait); }
    void waits_no_more() { endpoint_->waits_no_more(); }

private:
    int rank_;
    int size_;
    std::unique_ptr<detail::AnyEndpoint> endpoint_;
};

static_assert(mapping_transport<AnyTransport> && names_another<AnyTransport> && may_want_waits<AnyTransport>);
static_assert(mapping_transport<InProcess> && mapping_transport<SharedMemory>);

UNISONO_NAMESPACE_END

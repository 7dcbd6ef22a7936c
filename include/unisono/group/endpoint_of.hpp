#pragma once

/// \file
/// An endpoint made of a class whose abilities are concepts (transport/transport.hpp). It goes when
/// all transports derive from Endpoint.

#include "unisono/group/transport_kinds.hpp"
#include "unisono/transport/endpoint.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// Takes the transport over.
template <transport Transport>
class EndpointOf final : public Endpoint, private MessageView {
    static_assert(whole_capabilities<Transport>,
                  "unisono: found a transport that offers part of a capability. Required: all members of it, as "
                  "transport/transport.hpp lists them. Why: the group would leave it unused.");

public:
    explicit EndpointOf(Transport transport)
        : Endpoint(transport.rank(), transport.size(), facts_of(transport)), transport_(std::move(transport)) {
        if constexpr (maps_peers<Transport>) {
            mapped_ = transport_.mapped();
            fault_word_ = mapped_->fault;
        }
        if constexpr (shows_faults<Transport>) fault_word_ = &transport_.fault_word();
        if constexpr (sees_messages<Transport>) messages_ = this;
    }

    [[nodiscard]] Transport& transport() { return transport_; }
    [[nodiscard]] const Transport& transport() const { return transport_; }

    bool send(int peer, const Envelope& envelope, const std::byte* data, Token token) override {
        if constexpr (sends_at_once<Transport>) {
            return transport_.post_send(peer, envelope, data, token);
        } else {
            transport_.post_send(peer, envelope, data, token);
            return false;
        }
    }
    void receive(int peer, const Envelope& expected, Token token, [[maybe_unused]] std::byte* target) override {
        if constexpr (lands_messages<Transport>) transport_.post_receive_at(peer, expected, token, target);
        else transport_.post_receive(peer, expected.tag, token);
    }
    void progress(EndpointSink& sink) override { transport_.progress(sink); }
    void idle(std::uint32_t attempt, nanoseconds until) override { transport_.idle(attempt, until); }
    [[nodiscard]] nanoseconds now() const override { return transport_.now(); }
    void wake([[maybe_unused]] int peer) override {
        if constexpr (wakes_peers<Transport>) transport_.wake(peer);
    }

    void abort(const Fault& fault) override { transport_.abort(fault); }
    [[nodiscard]] const Fault* fault() const override { return transport_.first_fault(); }
    void look() override {
        if constexpr (looks_for_faults<Transport>) transport_.look();
    }
    [[nodiscard]] Presence presence([[maybe_unused]] int peer) override {
        if constexpr (sees_deaths<Transport>)
            if (transport_.has_died(peer)) return Presence::died;
        if constexpr (sees_leaving<Transport>)
            if (transport_.has_left(peer)) return Presence::left;
        return Presence::here;
    }
    void waits([[maybe_unused]] const Wait* wait) override {
        if constexpr (reports_waits<Transport>) {
            if (wait != nullptr) transport_.waits(*wait);
            else transport_.waits_no_more();
        }
    }

    [[nodiscard]] GroupBoard open([[maybe_unused]] std::uint64_t context, std::span<const int> members) override {
        GroupBoard board;
        [[maybe_unused]] const int ranks = static_cast<int>(members.size());
        if constexpr (announces<Transport>) board.announcements = transport_.announcements(context, ranks);
        if constexpr (maps_peers<Transport>) {
            board.lines = transport_.mapped_board(context, ranks);
            for (const int member : members) board.shifts.push_back(transport_.shift(member));
        }
        return board;
    }
    void close([[maybe_unused]] std::uint64_t context) noexcept override {
        if constexpr (drops_boards<Transport>) transport_.drop_board(context);
    }
    [[nodiscard]] int offer_board() override {
        if constexpr (gives_boards<Transport>) return transport_.offer_board();
        else return 0;
    }
    [[nodiscard]] std::uint64_t take_board(std::uint64_t context, [[maybe_unused]] int board,
                                           [[maybe_unused]] bool mine, [[maybe_unused]] int ranks) override {
        if constexpr (gives_boards<Transport>) {
            if (mine) transport_.give_board(ranks);
            return transport_.with_board(context, board);
        } else {
            return context;
        }
    }
    [[nodiscard]] std::shared_ptr<std::byte> allocate(std::size_t bytes) override {
        if constexpr (allocates<Transport>) return transport_.allocate(bytes);
        else return Endpoint::allocate(bytes);
    }
    [[nodiscard]] bool reaches([[maybe_unused]] const void* data, [[maybe_unused]] std::size_t bytes) const override {
        if constexpr (reaches_memory<Transport>) return transport_.reaches(data, bytes);
        else return true;
    }
    [[nodiscard]] bool knows_hosts() const override { return unisono::knows_hosts<Transport>; }
    [[nodiscard]] int host_of([[maybe_unused]] int peer) const override {
        if constexpr (unisono::knows_hosts<Transport>) return transport_.host_of(peer);
        else return 0;
    }
    [[nodiscard]] std::unique_ptr<OwnRuns> own_runs() override {
        if constexpr (has_own_collectives<Transport> || streaming_transport<Transport>) return own_runs_of(transport_);
        else return nullptr;
    }
    void check_may_change_threads() override {
        if constexpr (restricts_threads<Transport>) transport_.check_may_change_threads();
    }

private:
    static EndpointFacts facts_of([[maybe_unused]] const Transport& transport) {
        EndpointFacts facts{.name = Transport::name,
                            .exchange_bytes = exchange_bytes<Transport>,
                            .chunk_bytes = chunk_bytes<Transport>,
                            .virtual_time = has_virtual_time<Transport>,
                            .wants_waits = reports_waits<Transport>};
        if constexpr (may_want_waits<Transport>) facts.wants_waits = transport.wants_waits();
        if constexpr (lands_messages<Transport>) facts.lands_from = Transport::lands_from;
        return facts;
    }

    [[nodiscard]] bool awaits([[maybe_unused]] int peer) const override {
        if constexpr (sees_messages<Transport>) return transport_.awaits(peer);
        else return true;
    }
    [[nodiscard]] const Signature* early_signature([[maybe_unused]] int peer, [[maybe_unused]] std::uint64_t context,
                                                   [[maybe_unused]] std::uint32_t sequence) override {
        if constexpr (sees_messages<Transport>) return transport_.early_signature(peer, context, sequence);
        else return nullptr;
    }
    [[nodiscard]] std::string describe([[maybe_unused]] int peer) const override {
        if constexpr (sees_messages<Transport>) return transport_.describe(peer);
        else return {};
    }

    Transport transport_;
};

} // namespace detail
UNISONO_NAMESPACE_END

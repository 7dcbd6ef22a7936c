#pragma once

/// \file
/// A rank's end of a transport, from which each transport derives. A group calls its virtual
/// functions once per message, per idle moment or per group, and never per element. While it waits
/// for peers' words in mapped memory, which are plain data (`Mapped`, `GroupBoard`), it calls only
/// the clock and `idle`.
///
/// Laws
/// - Only `idle` and `abort` block. `send` and `receive` only record; `progress` transfers. Each
///   token is reported exactly once, unless the world has a fault: then tokens may never be
///   reported.
/// - `send` returns true if the message has left already: then its token is not reported.
/// - The owner of a send's memory leaves it untouched until `sent`; that of a receive's until
///   `received`.
/// - A receive matches the send of the same peer with an equal tag; tags in flight between two
///   ranks are unique. Messages may arrive before their receive is posted, and in any order.
/// - `received` gives the sender's envelope, so that the group compares signatures and sizes before
///   it touches the bytes. Its pointer is valid during that call: it points into the sender's
///   memory if the transport maps peers, else into the transport's own memory or the target.
/// - `idle(attempt, until)` yields the processor for a time that suits `attempt` fruitless calls of
///   `progress`, at most until `until` on the clock of `now()`.
/// - `abort(fault)`: the first fault of a world wins, and all its ranks soon see it. After it
///   returns, no rank accesses memory that this rank posted.
/// - One thread drives an endpoint at a time.
///
/// The defaults below are those of a transport that only moves messages.

#include "unisono/core/error.hpp"
#include "unisono/core/list.hpp"
#include "unisono/core/time.hpp"
#include "unisono/launch/launch.hpp"
#include "unisono/transport/board.hpp"
#include "unisono/transport/memory/mapped.hpp"
#include "unisono/transport/transport.hpp"
#include "unisono/transport/transport_executor.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

UNISONO_NAMESPACE_BEGIN

/// The common memory of one group's ranks. A transport without such memory leaves it empty.
struct GroupBoard {
    detail::Announcements announcements;
    detail::MappedBoard lines;
    detail::List<std::ptrdiff_t> shifts; ///< from each rank's addresses to this rank's
};

/// Takes what `progress` reports.
class EndpointSink {
public:
    virtual void sent(Token token) = 0;
    virtual void received(Token token, const Envelope& envelope, const std::byte* data) = 0;
    /// The message is longer than its receive, so its bytes are not needed.
    virtual void too_long(Token token, const Envelope& envelope) { received(token, envelope, nullptr); }

protected:
    ~EndpointSink() = default;
};

/// The messages in flight, for the diagnosis of a wait over a transport without announcements.
class MessageView {
public:
    /// True if a message from or to the peer is in flight.
    [[nodiscard]] virtual bool awaits(int peer) const = 0;
    /// The signature of a message of the peer's operation for which no receive is posted, or null.
    [[nodiscard]] virtual const Signature* early_signature(int peer, std::uint64_t context, std::uint32_t sequence) = 0;
    /// The peer's address, for the text of errors.
    [[nodiscard]] virtual std::string describe(int peer) const = 0;

protected:
    ~MessageView() = default;
};

/// The state of a peer, as far as this rank knows.
enum class Presence : std::uint8_t { here, left, died };

/// The properties of a transport that do not change. Equal on all ranks.
struct EndpointFacts {
    std::string_view name;
    std::size_t lands_from = ~std::size_t{0}; ///< messages of this size may arrive in their target
    bool virtual_time = false;                ///< time passes in `idle` alone
    bool wants_waits = false;                 ///< `waits` helps to find the cause of a timeout
    bool allocates = false;                   ///< `allocate` is the transport's own
};

/// One rank of a world: see above.
class Endpoint {
public:
    Endpoint(int rank, int size, const EndpointFacts& facts) : facts_(facts), rank_(rank), size_(size) {}
    Endpoint& operator=(Endpoint&&) = delete;
    UNISONO_OUTSIDE virtual ~Endpoint();

    [[nodiscard]] int rank() const { return rank_; }
    [[nodiscard]] int size() const { return size_; }
    [[nodiscard]] const EndpointFacts& facts() const { return facts_; }
    /// Null: this rank sees no memory of its peers.
    [[nodiscard]] const detail::Mapped* mapped() const { return mapped_ ? &*mapped_ : nullptr; }

    /// The world's first fault, or null. Where the world has a fault word, that costs one load.
    [[nodiscard, gnu::always_inline]] inline const Fault* first_fault() const {
        return fault_word_ != nullptr && fault_word_->load(std::memory_order_acquire) == 0 ? nullptr : fault();
    }
    /// See `Mapped`, which must not be null.
    [[nodiscard]] bool begin_touching() { return mapped_->begin_touching(); }
    void end_touching() { mapped_->end_touching(); }
    [[nodiscard, gnu::always_inline]] inline bool one_sleeps() const { return mapped_->one_sleeps(); }

    // --- messages and time ---

    virtual bool send(int peer, const Envelope& envelope, const std::byte* data, Token token) = 0;
    /// The expected message may arrive in `target`, if that is not null; it is reported from there.
    virtual void receive(int peer, const Envelope& expected, Token token, std::byte* target) = 0;
    virtual void progress(EndpointSink& sink) = 0;
    virtual void idle(std::uint32_t attempt, nanoseconds until) = 0;
    [[nodiscard]] virtual nanoseconds now() const = 0;
    /// Wakes a peer that sleeps until this rank writes to a board.
    virtual void wake(int) {}

    // --- faults ---

    virtual void abort(const Fault& fault) = 0;
    /// See `first_fault`.
    [[nodiscard]] virtual const Fault* fault() const = 0;
    /// Makes a fault that only the job's control plane knows the world's.
    virtual void look() {}
    /// An override tells both ends. `left` is used only with announcements or `messages()`: else a
    /// rank cannot tell whether the peer has sent all before it left.
    [[nodiscard]] virtual Presence presence(int) { return Presence::here; }
    /// The operation for which this rank has waited for a while; null: the wait is over.
    virtual void waits(const Wait*) {}
    /// Null: groups have announcements, or nothing is known of messages.
    [[nodiscard]] virtual MessageView* messages() { return nullptr; }

    // --- groups and memory ---

    /// The board of a group of these ranks of the world. Each of them opens it under this number,
    /// and closes it in the end, unless the group is the world.
    [[nodiscard]] virtual GroupBoard open(std::uint64_t /*context*/, std::span<const int> /*members*/) { return {}; }
    virtual void close(std::uint64_t) noexcept {}
    /// The number of a board that this rank can give to a new group; -1: none is left. Where boards
    /// are not limited, 0.
    [[nodiscard]] virtual int offer_board() { return 0; }
    /// The number of the new group of `ranks` ranks to which a rank (`mine`: this one) gives that
    /// board.
    [[nodiscard]] virtual std::uint64_t take_board(std::uint64_t context, int /*board*/, bool /*mine*/, int /*ranks*/) {
        return context;
    }
    /// Memory that moves without a copy, as long as its owner lives; not cleared. An override sets
    /// `EndpointFacts::allocates`. Errors: refused.
    [[nodiscard]] UNISONO_OUTSIDE virtual std::shared_ptr<std::byte> allocate(std::size_t bytes);
    /// True if `allocate`d memory alone moves without a copy, and these bytes are in such memory;
    /// also true if all memory does.
    [[nodiscard]] virtual bool reaches(const void*, std::size_t) const { return true; }
    /// True if `host_of` tells each rank's host; hosts are numbered from 0.
    [[nodiscard]] virtual bool knows_hosts() const { return false; }
    [[nodiscard]] virtual int host_of(int) const { return 0; }
    /// The operations that this transport runs itself instead of the library's steps; null: none.
    /// The endpoint must outlive the result.
    [[nodiscard]] virtual std::unique_ptr<detail::TransportExecutor> transport_executor() { return nullptr; }
    /// Called before another thread drives this endpoint. Errors: refused if none may.
    virtual void check_may_change_threads() {}

protected:
    Endpoint(Endpoint&&) noexcept = default;

    const std::atomic<std::uint32_t>* fault_word_ = nullptr; ///< 0 while the world is well; null: ask `fault`
    std::optional<detail::Mapped> mapped_;                   ///< a value, since a rank that waits reads it all the time
    EndpointFacts facts_;

private:
    int rank_;
    int size_;
};

namespace detail {

/// Refuses an endpoint that does not do what its class declares. \throws error bad_input
void check_endpoint(const Endpoint& endpoint, bool maps_peers, bool spans_hosts, bool virtual_time);

/// The scope in which a rank reads or writes its peers' memory; an abort waits for its end, which
/// also comes if a user's code throws. It is false after a fault: then that memory must not be
/// accessed.
class Touching {
public:
    explicit Touching(Endpoint& endpoint) : endpoint_(endpoint), begun_(endpoint.begin_touching()) {}
    Touching(const Touching&) = delete;
    Touching& operator=(const Touching&) = delete;
    ~Touching() {
        if (begun_) endpoint_.end_touching();
    }
    explicit operator bool() const { return begun_; }

private:
    Endpoint& endpoint_;
    bool begun_;
};

} // namespace detail
UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
#include "unisono/core/memory.hpp"

UNISONO_NAMESPACE_BEGIN

UNISONO_DEFINITION Endpoint::~Endpoint() = default;

UNISONO_DEFINITION std::shared_ptr<std::byte> Endpoint::allocate(std::size_t bytes) {
    return detail::memory_for_rank(rank_, bytes);
}

namespace detail {

UNISONO_DEFINITION void check_endpoint(const Endpoint& endpoint, bool maps_peers, bool spans_hosts, bool virtual_time) {
    const auto agree = [&](bool declared, bool found, const char* member, const char* means) {
        if (declared != found)
            refuse_input({"transport ", endpoint.facts().name, ": the class declares ", member,
                          declared ? " = true" : " = false or not at all", ", and its endpoint has ",
                          found ? "" : "not ", means, "; expected both or none (transport/endpoint.hpp)"});
    };
    agree(maps_peers, endpoint.mapped() != nullptr, "maps_peers", "set mapped_");
    agree(spans_hosts, endpoint.knows_hosts(), "spans_hosts", "overridden knows_hosts and host_of");
    agree(virtual_time, endpoint.facts().virtual_time, "virtual_time", "set EndpointFacts::virtual_time");
}

} // namespace detail
UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES

#pragma once

/// \file
/// The laws of transport/endpoint.hpp for any transport whose ranks may be threads of one process.
/// There is no archetype.

#include "unisono/core/text.hpp"
#include "unisono/core/thread_limits.hpp"
#include "unisono/group/run.hpp"
#include "unisono/testing/testing.hpp"

#include <algorithm>
#include <atomic>
#include <concepts>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace testing {

/// The parameters of the trial.
struct TransportTrial {
    int most_ranks = 4;
    std::vector<std::size_t> sizes = {0, 1, 64, 128, 129, 1000, 5000, 70000}; ///< bytes of messages
    int messages = 40; ///< messages from each rank to each other, all in flight at the same time
    std::chrono::nanoseconds timeout = std::chrono::seconds(20); ///< time limit of each wait; silence is a violation
};

namespace detail {

/// One message, at its sender or its receiver. Its contents follow from the sender and the
/// receiver.
struct Letter {
    int peer = 0;
    Envelope envelope;
    std::vector<std::byte> bytes; ///< the sender's memory
    std::uint64_t pattern = 0;
    int reported = 0;

    [[nodiscard]] std::byte expected(std::size_t i) const {
        return static_cast<std::byte>((pattern * 131 + i * 7 + (i >> 8)) & 0xff);
    }
};

inline Letter letter(int from, int to, int number, std::size_t bytes) {
    Letter made;
    made.pattern = (static_cast<std::uint64_t>(from) * 64 + static_cast<std::uint64_t>(to)) * 1024 +
                   static_cast<std::uint64_t>(number);
    // The two messages of a pair differ only in the context of their tags.
    made.envelope.tag = {.context = static_cast<std::uint64_t>(1 + number % 2),
                         .position = static_cast<std::uint64_t>(number / 2)};
    made.envelope.signature.count = made.pattern;
    made.envelope.bytes = bytes;
    return made;
}

/// One rank's messages in flight, as a sink. Overwrites a message when it is reported as sent: by
/// then the receiver must have all of it.
class Mail final : public EndpointSink {
public:
    std::vector<Letter> out, in;
    std::vector<std::string> wrong;
    std::size_t reports = 0;

    static Token sent_token(std::size_t i) { return 2 * i; }
    static Token received_token(std::size_t i) { return 2 * i + 1; }

    void sent(Token token) override {
        ++reports;
        if (token % 2 != 0 || token / 2 >= out.size()) return wrong.push_back("sent() has a token of no send");
        Letter& one = out[token / 2];
        if (++one.reported > 1) wrong.push_back("a send was reported more than once");
        std::fill(one.bytes.begin(), one.bytes.end(), std::byte{0xee});
    }
    void received(Token token, const Envelope& envelope, const std::byte* data) override {
        ++reports;
        if (token % 2 != 1 || token / 2 >= in.size()) return wrong.push_back("received() has a token of no receive");
        Letter& one = in[token / 2];
        if (++one.reported > 1) return wrong.push_back("a receive was reported more than once");
        if (!(envelope.tag == one.envelope.tag))
            return wrong.push_back("a receive was given a message with another tag");
        if (!(envelope.signature == one.envelope.signature) || envelope.bytes != one.envelope.bytes)
            return wrong.push_back("a message came with an envelope that is not its sender's");
        for (std::size_t i = 0; i < envelope.bytes; ++i)
            if (data[i] != one.expected(i))
                return wrong.push_back(
                    concat({"byte ", i, " of a message of ", envelope.bytes, " bytes is not what was sent"}));
    }
    [[nodiscard]] bool done() const { return waiting(out) == 0 && waiting(in) == 0; }
    [[nodiscard]] static std::size_t waiting(const std::vector<Letter>& letters) {
        return static_cast<std::size_t>(
            std::count_if(letters.begin(), letters.end(), [](const Letter& one) { return one.reported == 0; }));
    }
};

template <thread_transport Transport>
class TransportUnderTrial {
public:
    using World = typename Transport::World;

    TransportUnderTrial(const TransportTrial& trial, Violations& found) : trial_(trial), found_(found) {}

    enum class Order { as_sent, backwards, late };

    /// Every rank sends to every rank.
    void traffic(int ranks, Order order) {
        const char* const how[] = {"received in the order of sending", "received in reverse order",
                                   "sent before their receives are posted"};
        title_ = concat({ranks, " ranks, messages ", how[static_cast<int>(order)]});
        std::vector<Mail> mails(static_cast<std::size_t>(ranks)); // outlives all ranks, even if one fails
        on_ranks(ranks, [&](Transport& endpoint) {
            Mail& mail = mails[static_cast<std::size_t>(endpoint.rank())];
            write(endpoint, mail);
            for (std::size_t i = 0; i < mail.out.size(); ++i) send(endpoint, mail, i);
            if (order == Order::late)
                for (int i = 0; i < 1000; ++i) endpoint.progress(mail);
            for (std::size_t k = 0; k < mail.in.size(); ++k) {
                const std::size_t i = order == Order::backwards ? mail.in.size() - 1 - k : k;
                endpoint.receive(mail.in[i].peer, mail.in[i].envelope, Mail::received_token(i), nullptr);
            }
            const bool all = wait(endpoint, mail, [&] { return mail.done(); });
            if (all)
                for (int i = 0; i < 200; ++i) endpoint.progress(mail); // a second report would arrive now
            for (const std::string& one : mail.wrong) add(endpoint, one);
            if (!all && endpoint.first_fault() == nullptr)
                give_up(endpoint, concat({Mail::waiting(mail.out), " sends and ", Mail::waiting(mail.in),
                                          " receives were never reported"}));
        });
    }

    void clock_and_ranks(int ranks) {
        title_ = concat({ranks, " ranks"});
        std::vector<std::atomic<int>> seen(static_cast<std::size_t>(ranks));
        on_ranks(ranks, [&](Transport& endpoint) {
            if (endpoint.size() != ranks) add(endpoint, concat({"size() is ", endpoint.size()}));
            if (endpoint.rank() < 0 || endpoint.rank() >= ranks) return add(endpoint, "rank() is out of range");
            if (seen[static_cast<std::size_t>(endpoint.rank())]++ != 0)
                add(endpoint, "another rank has the same rank()");
            if (endpoint.first_fault() != nullptr) add(endpoint, "has a fault although all is well");
            nanoseconds before = endpoint.now();
            for (const std::uint32_t attempt : {0u, 100u, 5000u, 70000u, 1000000u}) {
                const nanoseconds until = endpoint.now() + 1'000'000;
                endpoint.idle(attempt, until);
                const nanoseconds now = endpoint.now();
                if (now < before) add(endpoint, "now() went backwards");
                if (now > until + 5'000'000'000) add(endpoint, "idle() slept seconds past its limit");
                before = now;
            }
        });
    }

    /// The first fault wins and reaches all ranks, even if another rank aborts later.
    void first_fault_wins(int ranks) {
        title_ = concat({ranks, " ranks, of which two abort"});
        on_ranks(ranks, [&](Transport& endpoint) {
            const int first = ranks - 1;
            Mail mail;
            if (endpoint.rank() == first) endpoint.abort(fault_of(first, "the first"));
            if (!wait(endpoint, mail, [&] { return endpoint.first_fault() != nullptr; }))
                return add(endpoint, "abort() of another rank was never seen");
            if (endpoint.rank() != first) endpoint.abort(fault_of(endpoint.rank(), "a later one"));
            endpoint.progress(mail); // must have no effect
            const Fault* fault = endpoint.first_fault();
            if (fault == nullptr || fault->rank != first || fault->message != "the first")
                add(endpoint, "first_fault() is not the first fault");
        });
    }

    /// After abort() has returned, no peer accesses memory that was posted here.
    void abort_is_quiescent() {
        title_ = "2 ranks, one aborts while the other reads";
        struct Reader final : EndpointSink {
            const std::byte* begin = nullptr;
            const std::byte* end = nullptr;
            std::atomic<bool> inside{false}, withdrawn{false}, touched{false};
            void sent(Token) override {}
            void received(Token, const Envelope&, const std::byte* data) override {
                inside = true;
                if (data < begin || data >= end) return; // a bounce buffer of the transport
                std::this_thread::sleep_for(std::chrono::milliseconds(30));
                if (withdrawn) touched = true;
            }
        };
        const std::vector<std::byte> memory(std::size_t{1} << 16);
        Reader reader;
        reader.begin = memory.data();
        reader.end = memory.data() + memory.size();
        std::atomic<bool> over{false};
        on_ranks(2, [&](Transport& endpoint) {
            Envelope envelope;
            envelope.bytes = memory.size();
            Mail nothing;
            if (endpoint.rank() == 0) {
                struct Ignore final : EndpointSink {
                    void sent(Token) override {}
                    void received(Token, const Envelope&, const std::byte*) override {}
                } ignore;
                endpoint.send(1, envelope, memory.data(), 0);
                wait(endpoint, ignore, [&] { return reader.inside.load(); });
                endpoint.abort(fault_of(0, "gives up"));
                reader.withdrawn = true;
                over = true;
            } else {
                endpoint.receive(0, envelope, 0, nullptr);
                wait(endpoint, reader, [&] { return over.load(); });
                if (reader.touched) add(endpoint, "abort() returned while a peer was reading memory that was posted");
            }
        });
    }

    /// For transports that know which ranks have left.
    void leaving() {
        constexpr bool knows =
            requires { requires !std::same_as<decltype(&Transport::presence), Presence (Endpoint::*)(int)>; };
        if constexpr (knows) {
            title_ = "2 ranks, one leaves";
            std::atomic<bool> may_leave{false};
            on_ranks(2, [&](Transport& endpoint) {
                Mail nothing;
                if (endpoint.rank() == 0) {
                    wait(endpoint, nothing, [&] { return may_leave.load(); });
                    return;
                }
                if (endpoint.presence(0) != Presence::here)
                    add(endpoint, "presence() says that a rank is gone that is here");
                may_leave = true;
                if (!wait(endpoint, nothing, [&] { return endpoint.presence(0) == Presence::left; }))
                    add(endpoint, "presence() did not say that the other had left");
            });
        }
    }

private:
    static Fault fault_of(int rank, const char* message) {
        Fault fault;
        fault.code = ErrorCode::aborted;
        fault.rank = rank;
        fault.message = message;
        return fault;
    }

    void write(const Transport& endpoint, Mail& mail) const {
        const int me = endpoint.rank();
        for (int number = 0; number < trial_.messages; ++number) {
            const std::size_t bytes = trial_.sizes[static_cast<std::size_t>(number) % trial_.sizes.size()];
            for (int peer = 0; peer < endpoint.size(); ++peer) {
                if (peer == me) continue;
                Letter& out = mail.out.emplace_back(letter(me, peer, number, bytes));
                out.peer = peer;
                out.bytes.resize(bytes);
                for (std::size_t i = 0; i < bytes; ++i) out.bytes[i] = out.expected(i);
                mail.in.emplace_back(letter(peer, me, number, bytes)).peer = peer;
            }
        }
    }

    static void send(Transport& endpoint, Mail& mail, std::size_t i) {
        const Letter& one = mail.out[i];
        if (endpoint.send(one.peer, one.envelope, one.bytes.data(), Mail::sent_token(i)))
            mail.sent(Mail::sent_token(i)); // it has left, and its token is not reported
    }

    template <class Body>
    void on_ranks(int ranks, const Body& body) {
        const auto world = std::make_shared<World>(ranks);
        std::vector<std::thread> threads;
        try {
            for (int rank = 0; rank < ranks; ++rank) threads.emplace_back([&, rank] { on_rank(world, rank, body); });
        } catch (const std::system_error& failed) {
            gave_up_ = true; // the others wait for it no longer
            add(static_cast<int>(threads.size()), unisono::detail::no_thread_for("it", failed.code().value()));
        }
        for (std::thread& thread : threads) thread.join();
    }

    /// One rank's thread. What is thrown is a violation, also where there is no endpoint yet.
    template <class Body>
    void on_rank(const std::shared_ptr<World>& world, int rank, const Body& body) {
        try {
            Transport endpoint(world, rank);
            try {
                body(endpoint);
            } catch (const std::exception& thrown) {
                give_up(endpoint, concat({"threw ", thrown.what()}));
            } catch (...) {
                give_up(endpoint, "threw what is no std::exception");
                unisono::detail::pass_on_end_of_thread();
            }
        } catch (const std::exception& thrown) {
            gave_up_ = true;
            add(rank, concat({"could not be made: ", thrown.what()}));
        } catch (...) {
            unisono::detail::pass_on_end_of_thread();
            gave_up_ = true;
            add(rank, "could not be made: it threw what is no std::exception");
        }
    }

    /// Drives the endpoint until `met`. Returns false after the timeout, or once another rank has
    /// given up.
    template <class Met>
    bool wait(Transport& endpoint, EndpointSink& sink, const Met& met) {
        const nanoseconds deadline = deadline_after(endpoint.now(), trial_.timeout);
        for (std::uint32_t attempt = 0; !met(); ++attempt) {
            if (endpoint.now() > deadline) return false;
            endpoint.progress(sink);
            if (met()) return true;
            if (gave_up_) return false;
            endpoint.idle(attempt, deadline);
        }
        return true;
    }

    void give_up(Transport& endpoint, const std::string& why) {
        add(endpoint, why);
        gave_up_ = true;
        endpoint.abort(fault_of(endpoint.rank(), "the law's trial failed"));
    }

    void add(const Transport& endpoint, const std::string& what) { add(endpoint.rank(), what); }
    void add(int rank, const std::string& what) {
        const std::lock_guard lock(mutex_);
        found_.add(concat({title_, ": rank ", rank, ": ", what}));
    }

    const TransportTrial& trial_;
    Violations& found_;
    std::string title_;
    std::mutex mutex_;
    std::atomic<bool> gave_up_{false};
};

} // namespace detail

/// Checks matching by tag in any order, early messages, many messages in flight, one report per
/// token with the data that were sent, clocks, faults, silence after an abort, and leaving (these
/// two need 2 ranks). Each check has its own world of threads. A rank that cannot be made is a
/// violation.
template <thread_transport Transport>
Violations transport_laws(const TransportTrial& trial = {}) {
    using Laws = detail::TransportUnderTrial<Transport>;
    Violations found{std::string(Transport::name)};
    for (int ranks = 1; ranks <= trial.most_ranks; ++ranks) {
        Laws(trial, found).clock_and_ranks(ranks);
        for (const auto order : {Laws::Order::as_sent, Laws::Order::backwards, Laws::Order::late})
            if (!found.full()) Laws(trial, found).traffic(ranks, order);
        Laws(trial, found).first_fault_wins(ranks);
    }
    if (trial.most_ranks >= 2) {
        Laws(trial, found).abort_is_quiescent();
        Laws(trial, found).leaving();
    }
    return found;
}

} // namespace testing
UNISONO_NAMESPACE_END

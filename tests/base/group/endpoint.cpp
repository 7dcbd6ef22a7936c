// Endpoints made of each kind of transport: what a group relies on.
#include "support/refusal.hpp"

#include "unisono/simulate.hpp"
#include "unisono/tcp.hpp"
#include "unisono/unisono.hpp"

#include <boost/mpl/list.hpp>
#include <boost/test/unit_test.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace un = unisono;
using un::Endpoint;
using un::Presence;

namespace {

using All = boost::mpl::list<un::InProcess, un::SharedMemory, un::Simulated, un::Tcp>;

/// Runs `body(endpoint)` on the threads of a world, and throws what the first of them threw.
template <class Transport, class Body>
void run(int ranks, Body body) {
    const auto world = std::make_shared<typename Transport::World>(ranks);
    std::vector<std::exception_ptr> failed(static_cast<std::size_t>(ranks));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
        threads.emplace_back([&, rank] {
            try {
                Transport endpoint(world, rank);
                body(endpoint);
            } catch (...) {
                failed[static_cast<std::size_t>(rank)] = std::current_exception();
                world->abort(rank, {.code = un::ErrorCode::aborted, .rank = rank, .message = "the test failed"});
            }
        });
    }
    for (std::thread& one : threads) one.join();
    for (const std::exception_ptr& one : failed)
        if (one) std::rethrow_exception(one);
}

void require(bool holds, const char* what) {
    if (!holds) throw std::runtime_error(what);
}

/// Notes what an endpoint reports.
struct Notes final : un::EndpointSink {
    std::vector<un::Token> sends;
    std::vector<un::Token> receives;
    std::vector<std::vector<std::byte>> data;
    std::vector<un::Envelope> envelopes;

    void sent(un::Token token) override { sends.push_back(token); }
    void received(un::Token token, const un::Envelope& envelope, const std::byte* from) override {
        receives.push_back(token);
        envelopes.push_back(envelope);
        data.emplace_back(from, from == nullptr ? from : from + envelope.bytes);
    }
};

/// Drives an endpoint until `done()`, for at most 20 s of its time.
template <class Done>
void drive(Endpoint& endpoint, Notes& notes, Done done, const char* what) {
    const un::nanoseconds until = endpoint.now() + 20'000'000'000;
    for (std::uint32_t attempt = 0; !done(); ++attempt) {
        require(endpoint.now() < until, what);
        endpoint.progress(notes);
        if (!done()) endpoint.idle(attempt, until);
    }
}

un::Envelope envelope(std::uint64_t position, std::size_t bytes) {
    un::Envelope made;
    made.tag = {.context = 1, .position = position};
    made.signature.count = 5 + position;
    made.bytes = bytes;
    return made;
}

/// Moves messages and has no capability beyond that.
class Plain : public Endpoint {
public:
    static constexpr std::string_view name = "plain";
    static constexpr bool maps_peers = false;
    using World = un::InProcess::World;

    Plain(const std::shared_ptr<World>& world, int rank)
        : Endpoint(rank, world->size(), {.name = name}), inner_(world, rank) {}

    bool send(int peer, const un::Envelope& envelope, const std::byte* data, un::Token token) override {
        if (inner_.send(peer, envelope, data, token)) left_.push_back(token);
        return false;
    }
    void receive(int peer, const un::Envelope& expected, un::Token token, std::byte* target) override {
        inner_.receive(peer, expected, token, target);
    }
    void progress(un::EndpointSink& sink) override {
        for (const un::Token token : std::exchange(left_, {})) sink.sent(token);
        inner_.progress(sink);
    }
    void idle(std::uint32_t attempt, un::nanoseconds until) override { inner_.idle(attempt, until); }
    [[nodiscard]] un::nanoseconds now() const override { return inner_.now(); }
    void abort(const un::Fault& fault) override { inner_.abort(fault); }
    [[nodiscard]] const un::Fault* fault() const override { return inner_.fault(); }

protected:
    un::InProcess inner_;

private:
    std::vector<un::Token> left_;
};

/// Knows who has left, and nothing of messages.
class Leaving : public Plain {
public:
    using Plain::Plain;
    [[nodiscard]] un::Presence presence(int peer) override { return inner_.presence(peer); }
};

/// Classes that declare what their endpoints do not do.
struct Mapping : Plain {
    using Plain::Plain;
    static constexpr bool maps_peers = true;
};
struct Hosting : Plain {
    using Plain::Plain;
    static constexpr bool spans_hosts = true;
};
struct Timing : Plain {
    using Plain::Plain;
    static constexpr bool virtual_time = true;
};
struct Hidden : Plain {
    using Plain::Plain;
    [[nodiscard]] bool knows_hosts() const override { return true; }
};

} // namespace

BOOST_AUTO_TEST_SUITE(endpoints)

template <class Transport>
std::string refusal() {
    return test::error_text(
        [] { const un::Group<Transport> group(Transport(std::make_shared<un::InProcess::World>(1), 0)); });
}
BOOST_AUTO_TEST_CASE(a_class_that_declares_what_its_endpoint_does_not_do_is_refused) {
    BOOST_TEST(refusal<Plain>() == "");
    BOOST_TEST(refusal<Mapping>() ==
               "unisono: bad_input: transport plain: the class declares maps_peers = true, and its "
               "endpoint has not set mapped_; expected both or none (transport/endpoint.hpp)");
    BOOST_TEST(refusal<Hosting>().find("spans_hosts = true") != std::string::npos);
    BOOST_TEST(refusal<Hidden>().find("spans_hosts = false or not at all") != std::string::npos);
    BOOST_TEST(refusal<Timing>().find("virtual_time = true") != std::string::npos);
}

/// Rank 1 has sent all when it leaves, and rank 2 is late.
BOOST_AUTO_TEST_CASE(a_rank_that_left_is_not_blamed_if_nothing_tells_what_it_has_sent) {
    BOOST_CHECK_NO_THROW(un::run<Leaving>(3, [](auto& world) {
        std::vector<int> all(world.rank() == 0 ? 3 : 0);
        const std::vector<int> own = {world.rank() + 1};
        if (world.rank() == 2) std::this_thread::sleep_for(std::chrono::milliseconds(50));
        un::gather(world, own, all, 0);
        if (world.rank() == 0 && all != std::vector<int>{1, 2, 3}) throw std::runtime_error("wrong data");
    }));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(messages_come_once_with_their_envelope, Transport, All) {
    const std::vector<std::size_t> sizes = {0, 1, 100, 3000, 70000};
    BOOST_CHECK_NO_THROW(run<Transport>(2, [&](Endpoint& endpoint) {
        Notes notes;
        const int peer = 1 - endpoint.rank();
        std::vector<std::vector<std::byte>> out;
        std::size_t left = 0;
        for (std::size_t i = 0; i < sizes.size(); ++i) {
            out.emplace_back(sizes[i], static_cast<std::byte>(i + 1));
            if (endpoint.send(peer, envelope(i, sizes[i]), out[i].data(), i)) ++left;
        }
        std::vector<std::vector<std::byte>> targets;
        for (std::size_t i = sizes.size(); i-- > 0;) { // in another order
            targets.emplace_back(sizes[i]);
            endpoint.receive(peer, envelope(i, sizes[i]), 100 + i, i % 2 == 0 ? nullptr : targets.back().data());
        }
        drive(
            endpoint, notes,
            [&] { return notes.receives.size() == sizes.size() && notes.sends.size() + left == sizes.size(); },
            "not all messages came");
        for (std::size_t i = 0; i < notes.receives.size(); ++i) {
            const std::size_t which = notes.receives[i] - 100;
            require(notes.envelopes[i].bytes == sizes[which], "another size");
            require(notes.envelopes[i].signature.count == 5 + which, "another signature");
            require(notes.data[i] == out[which], "other bytes");
        }
        endpoint.progress(notes);
        require(notes.receives.size() == sizes.size(), "a message came twice");
    }));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(the_first_fault_reaches_all, Transport, All) {
    BOOST_CHECK_NO_THROW(run<Transport>(3, [&](Endpoint& endpoint) {
        if (endpoint.rank() == 1) {
            require(endpoint.first_fault() == nullptr, "a fault at first");
            if (endpoint.mapped() != nullptr) {
                require(endpoint.begin_touching(), "peers' memory was refused");
                endpoint.end_touching();
            }
            endpoint.abort({.code = un::ErrorCode::aborted, .rank = 1, .message = "rank 1 gave up"});
        }
        const un::nanoseconds until = endpoint.now() + 20'000'000'000;
        for (std::uint32_t attempt = 0; endpoint.first_fault() == nullptr; ++attempt) {
            require(endpoint.now() < until, "no fault came");
            endpoint.look();
            endpoint.idle(attempt, until);
        }
        endpoint.abort({.code = un::ErrorCode::aborted, .rank = endpoint.rank(), .message = "too late"});
        require(endpoint.first_fault()->message == "rank 1 gave up", "another fault");
        require(endpoint.mapped() == nullptr || !endpoint.begin_touching(), "peers' memory may be touched");
    }));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(a_group_has_a_board_until_all_close_it, Transport, All) {
    BOOST_CHECK_NO_THROW(run<Transport>(2, [&](Endpoint& endpoint) {
        Notes notes;
        const std::vector<int> members = {0, 1};
        require(endpoint.offer_board() >= 0, "no board is left");
        const std::uint64_t group = endpoint.take_board(1 << 20, 2, endpoint.rank() == 0, 2);
        const un::GroupBoard board = endpoint.open(group, members);
        require(static_cast<bool>(board.announcements) == (endpoint.messages() == nullptr),
                "neither announcements nor a view of messages, or both");
        require((endpoint.mapped() != nullptr) == (board.shifts.size() == 2), "shifts do not fit");
        if (board.announcements) {
            board.announcements.announce(endpoint.rank(), 7, {.element = 3});
            const un::nanoseconds until = endpoint.now() + 20'000'000'000;
            for (std::uint32_t attempt = 0; board.announcements.latest(1 - endpoint.rank()) != 7; ++attempt) {
                require(endpoint.now() < until, "the peer announced nothing");
                endpoint.progress(notes);
                endpoint.idle(attempt, endpoint.now() + 1'000'000);
            }
        }
        endpoint.close(group);
    }));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(a_rank_that_left_is_known, Transport, All) {
    BOOST_CHECK_NO_THROW(run<Transport>(2, [&](Endpoint& endpoint) {
        Notes notes;
        std::byte one{5};
        if (endpoint.rank() == 1) {
            bool left = endpoint.send(0, envelope(1, 1), &one, 1);
            return drive(
                endpoint, notes, [&] { return left || !notes.sends.empty(); }, "nothing was sent");
        }
        endpoint.receive(1, envelope(1, 1), 2, nullptr);
        drive(
            endpoint, notes, [&] { return notes.receives.size() == 1; }, "no message came");
        endpoint.receive(1, envelope(2, 1), 3, nullptr); // a network notices the end of those it waits for
        drive(
            endpoint, notes, [&] { return endpoint.presence(1) == Presence::left; }, "the peer is here still");
    }));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(memory_of_the_endpoint_is_seen, Transport, All) {
    BOOST_CHECK_NO_THROW(run<Transport>(1, [&](Endpoint& endpoint) {
        const std::shared_ptr<std::byte> memory = endpoint.allocate(1000);
        memory.get()[999] = std::byte{1};
        require(endpoint.mapped() == nullptr || endpoint.mapped()->reaches(memory.get(), 1000), "peers do not see it");
    }));
}

BOOST_AUTO_TEST_CASE(a_transport_of_messages_alone_carries_a_group) {
    const auto world = std::make_shared<Plain::World>(2);
    std::vector<double> sums(2);
    std::vector<un::Fault> faults(2);
    const auto body = [&](int rank) {
        un::Group<Plain> group(Plain(world, rank));
        sums[static_cast<std::size_t>(rank)] = rank + 1;
        try {
            un::all_reduce(group, sums[static_cast<std::size_t>(rank)], un::Sum{});
            group.set_timeout(std::chrono::milliseconds(rank == 0 ? 20 : 20'000));
            double mine = 0;
            if (rank == 0) un::all_reduce(group, mine, un::Sum{});
            else un::receive(group, std::span(&mine, 1), 0); // nobody sends
        } catch (const un::error& caught) {
            faults[static_cast<std::size_t>(rank)] = caught.why();
        }
    };
    std::thread other([&] { body(1); });
    body(0);
    other.join();
    BOOST_TEST((sums[0] == 3 && sums[1] == 3));
    for (const un::Fault& fault : faults) {
        BOOST_TEST((fault.code == un::ErrorCode::timeout), fault.message);
        BOOST_TEST((fault.rank == 0 && fault.peer < 0), fault.message); // none is blamed without evidence
        BOOST_TEST(!(fault.message.find("started") != std::string::npos), fault.message);
    }
}

BOOST_AUTO_TEST_CASE(facts_are_those_of_the_transport) {
    un::InProcess threads;
    un::SharedMemory processes;
    un::Simulated simulated;
    un::Tcp network;
    BOOST_TEST(threads.facts().name == "in_process");
    BOOST_TEST((threads.mapped() != nullptr && processes.mapped() != nullptr));
    BOOST_TEST((simulated.mapped() == nullptr && network.mapped() == nullptr));
    BOOST_TEST((threads.messages() == nullptr && simulated.messages() == nullptr && network.messages() != nullptr));
    BOOST_TEST((simulated.facts().virtual_time && !threads.facts().virtual_time));
    BOOST_TEST((processes.facts().wants_waits && network.facts().wants_waits && !threads.facts().wants_waits));
    BOOST_TEST(network.facts().lands_from == un::Tcp::lands_from);
    const std::vector<std::byte> own(10);
    BOOST_TEST(threads.mapped()->reaches(own.data(), own.size()));
    BOOST_TEST(!processes.mapped()->reaches(own.data(), own.size()));
}

BOOST_AUTO_TEST_SUITE_END()

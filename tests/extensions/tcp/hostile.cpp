// A peer sends frames that no rank sends. Each is an error that says what arrived. None crashes the
// rank, and none makes it allocate memory by a mere number.
#include "support.hpp"

#include <unisono/extensions/launch/control/entrance.hpp>
#include <unisono/group/suspicion.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <functional>
#include <thread>

namespace hostile_test {
namespace {

namespace un = unisono;
using namespace std::chrono_literals;

/// Reads exactly this many bytes. Returns false if the connection ends before.
bool read_all(int fd, void* data, std::size_t bytes) {
    for (std::size_t have = 0; have < bytes;) {
        pollfd one{.fd = fd, .events = POLLIN, .revents = 0};
        if (::poll(&one, 1, 10'000) <= 0) return false;
        const ssize_t got = ::recv(fd, static_cast<char*>(data) + have, bytes - have, MSG_DONTWAIT);
        if (got <= 0) return false;
        have += static_cast<std::size_t>(got);
    }
    return true;
}

/// A connection to this rank.
un::detail::Entrance visit(const test::Group& rank) { return {.socket = test::connected_to(rank)}; }
/// Reads until the connection ends, or this many bytes are there. Returns their number.
std::size_t read(un::detail::Entrance& visitor, std::size_t most, const std::function<void()>& progress) {
    for (const un::nanoseconds until = un::steady_now() + 10'000'000'000;
         visitor.unread.size() < most && un::steady_now() < until;) {
        progress();
        if (un::detail::wait_for(visitor.socket.get(), POLLIN, un::steady_now()) &&
            !un::detail::read_more(visitor, un::steady_now() + 1'000'000))
            break;
    }
    return visitor.unread.size();
}
void say(const un::detail::Entrance& visitor, const un::Blob& bytes) {
    BOOST_TEST_REQUIRE(un::detail::send_all(visitor.socket.get(), bytes, un::steady_now() + 5'000'000'000));
}

/// The fault of a group's all_reduce.
un::Fault fault_of_sum(test::Group& group, std::size_t count) {
    std::vector<float> data(count, 1.0f);
    try {
        un::all_reduce(group, data);
    } catch (const un::error& failed) {
        return failed.why();
    }
    return {};
}

/// Plays rank 1 of two: greets rank 0, takes the first message of its all_reduce, and sends the
/// message's own header back after `change`, with the same number of bytes. Rank 0 fails. Returns
/// its fault.
un::Fault answered_with(std::size_t count, const std::function<void(un::detail::TcpHeader&)>& change) {
    const auto world = std::make_shared<un::Tcp::World>(2);
    test::Group group{un::Tcp(world, 0)};
    group.set_timeout(5s);
    const un::detail::FileDescriptor peer = test::connected_to(group);
    std::thread answers([&] {
        if (!test::greet(peer.get(), world->key(), [] { std::this_thread::sleep_for(1ms); })) return;
        un::detail::TcpHeader header;
        do {
            if (!read_all(peer.get(), &header, sizeof header)) return;
        } while (header.kind != un::detail::TcpFrame::message);
        const auto bytes = un::detail::TcpHeader::padded(static_cast<std::size_t>(header.envelope.bytes));
        std::string data(bytes, '\0');
        if (!read_all(peer.get(), data.data(), bytes)) return;
        change(header);
        static_cast<void>(::send(peer.get(), &header, sizeof header, MSG_NOSIGNAL) + 0);
        static_cast<void>(::send(peer.get(), data.data(), data.size(), MSG_NOSIGNAL) + 0);
    });
    const un::Fault found = fault_of_sum(group, count);
    ::shutdown(peer.get(), SHUT_RDWR);
    answers.join();
    return found;
}

} // namespace

BOOST_AUTO_TEST_SUITE(tcp_hostile)

// A greeting with a valid proof, but for another rank, world or connection, is a stranger's.
BOOST_AUTO_TEST_CASE(greetings_that_are_meant_for_somebody_else) {
    const auto world = std::make_shared<un::Tcp::World>(3);
    test::Group here{un::Tcp(world, 0, {.connections = 2})};
    const auto is_rank = [&](int from, int to, int ranks, int connection) {
        const un::detail::FileDescriptor socket = test::connected_to(here);
        return test::greet(
            socket.get(), world->key(), [&] { here.progress(); }, connection, from, to, ranks);
    };
    BOOST_TEST(!is_rank(2, 1, 3, 1));
    BOOST_TEST(!is_rank(0, 0, 3, 1));
    BOOST_TEST(!is_rank(3, 0, 3, 1));
    BOOST_TEST(!is_rank(2, 0, 4, 1));
    BOOST_TEST(!is_rank(2, 0, 3, 2));
    BOOST_TEST(here.endpoint().connections() == 0u);
    BOOST_TEST(is_rank(2, 0, 3, 1));
}

// A caller knows the protocol, the world and the rank, and has another key.
BOOST_AUTO_TEST_CASE(a_caller_without_proof_is_refused) {
    const auto world = std::make_shared<un::Tcp::World>(2);
    test::Group here{un::Tcp(world, 0)};
    const auto progress = [&] { here.progress(); };
    const auto is_let_in = [&](const std::function<void(un::Blob&)>& change) {
        un::detail::Greeter rank({.world = 2, .rank = 1, .to = 0, .door = un::detail::Door::data});
        un::detail::Entrance caller = visit(here);
        un::Blob proof;
        say(caller, rank.hello());
        read(caller, un::detail::Challenge::bytes, progress);
        BOOST_TEST_REQUIRE((rank.look(world->key(), caller.unread, proof) == un::detail::Greeted::proven));
        change(proof);
        say(caller, proof);
        return read(caller, 24, progress) == 24u;
    };
    BOOST_TEST(!is_let_in([](un::Blob& proof) { proof.front() ^= std::byte{1}; }));
    BOOST_TEST(!is_let_in([](un::Blob& proof) { proof.back() ^= std::byte{128}; }));
    BOOST_TEST(!is_let_in([](un::Blob& proof) { std::fill(proof.begin(), proof.end(), std::byte{0}); }));
    BOOST_TEST(here.endpoint().connections() == 0u);
    BOOST_TEST(is_let_in([](un::Blob&) {}));
    BOOST_TEST(here.endpoint().connections() == 1u);
}

// A recorded greeting proves nothing: not at the rank that received it, nor at the one that sent
// it, nor in another world.
BOOST_AUTO_TEST_CASE(a_recorded_greeting_proves_nothing) {
    const auto world = std::make_shared<un::Tcp::World>(2);
    test::Group here{un::Tcp(world, 0)}, there{un::Tcp(world, 1)};
    std::vector<int> found(1);
    un::Operation first = un::start_receive(here, found, 1), second = un::start_receive(there, found, 0);
    const auto progress = [&] { first.poll(), second.poll(); };
    // What a reader of the network records of a rank that is let in.
    un::detail::Greeter rank({.world = 2, .rank = 1, .to = 0, .door = un::detail::Door::data});
    un::detail::Entrance honest = visit(here);
    un::Blob recorded = rank.hello(), proof;
    say(honest, recorded);
    read(honest, un::detail::Challenge::bytes, progress);
    BOOST_TEST_REQUIRE((rank.look(world->key(), honest.unread, proof) == un::detail::Greeted::proven));
    say(honest, proof);
    BOOST_TEST(read(honest, 24, progress) == 24u); // accepted
    BOOST_TEST(here.endpoint().connections() == 1u);
    recorded.insert(recorded.end(), proof.begin(), proof.end());
    const std::string text(reinterpret_cast<const char*>(recorded.data()), recorded.size());
    BOOST_TEST(text.find(std::string(reinterpret_cast<const char*>(world->key().value().data()),
                                     un::JobToken::bytes)) == std::string::npos);
    // Again, and at the rank that has sent it.
    for (const test::Group* const at : {&here, &there}) {
        un::detail::Entrance replay = visit(*at);
        say(replay, recorded);
        BOOST_TEST(read(replay, 1000, progress) == un::detail::Challenge::bytes);
    }
    // In another world with these ranks; and of a rank with the key that means another rank.
    const auto other = std::make_shared<un::Tcp::World>(2);
    BOOST_TEST(!test::greet(visit(there).socket.get(), other->key(), progress, 0, 0, 1));
    BOOST_TEST(!test::greet(visit(there).socket.get(), world->key(), progress, 0, 1, 0));
    BOOST_TEST(there.endpoint().connections() == 0u);
    for (test::Group* const each : {&here, &there})
        each->endpoint().abort({.code = un::ErrorCode::aborted, .message = "the end"});
    BOOST_CHECK_THROW(first.wait(1s), un::error);
    BOOST_CHECK_THROW(second.wait(1s), un::error);
}

/// Rank 0 of two connects to `host(listener)` instead of its peer. Returns the fault of its
/// all_reduce.
un::Fault met(const std::function<void(int listener)>& host) {
    const auto world = std::make_shared<un::Tcp::World>(2);
    test::Group group{un::Tcp(world, 0)};
    group.set_timeout(10s);
    const un::detail::TcpEntrance entrance = un::detail::open_entrance({}, false);
    world->publish(1, entrance.address().text());
    std::thread listens([&] { host(entrance.listener.socket.get()); });
    const un::Fault found = fault_of_sum(group, 100);
    listens.join();
    return found;
}
un::detail::FileDescriptor next_guest(int listener) {
    if (!un::detail::wait_for(listener, POLLIN, un::steady_now() + 10'000'000'000)) return {};
    return un::detail::FileDescriptor(::accept(listener, nullptr, nullptr));
}

// A listener in a peer's place is detected, whatever it answers: a challenge without proof, or the
// rank's own greeting.
BOOST_AUTO_TEST_CASE(who_answers_without_the_key_is_no_peer) {
    for (const bool reflects : {false, true}) {
        const un::Fault found = met([=](int listener) {
            const un::detail::FileDescriptor guest = next_guest(listener);
            un::Blob hello(un::detail::Hello::bytes);
            if (!read_all(guest.get(), hello.data(), hello.size())) return;
            const un::Blob answer = reflects ? hello : un::detail::encode(un::detail::Challenge{});
            static_cast<void>(::send(guest.get(), answer.data(), answer.size(), MSG_NOSIGNAL) + 0);
            char one = 0;
            // Until the rank closes the connection.
            static_cast<void>(read_all(guest.get(), &one, 1));
        });
        test::expect_fault(found, un::ErrorCode::peer_lost, {"does not have this world's key"});
    }
}

// Before a proven answer, nothing else counts: no message, which would be data; no stripe; no
// goodbye in the peer's name.
BOOST_AUTO_TEST_CASE(who_speaks_before_the_answer_is_no_peer) {
    using Kind = un::detail::TcpFrame;
    for (const Kind kind : {Kind::message, Kind::stripe, Kind::goodbye, static_cast<Kind>(0), static_cast<Kind>(77)}) {
        for (const std::size_t bytes : {std::size_t{0}, std::size_t{16}, std::size_t{1} << 26}) {
            std::size_t taken = 0;
            const un::Fault found = met([&](int listener) {
                const un::detail::FileDescriptor guest = next_guest(listener);
                un::Blob hello(un::detail::Hello::bytes);
                if (!read_all(guest.get(), hello.data(), hello.size())) return;
                un::detail::TcpHeader header;
                header.kind = kind;
                header.envelope.bytes = bytes;
                std::string said(sizeof header + bytes, 'x');
                std::memcpy(said.data(), &header, sizeof header);
                while (taken < said.size()) {
                    pollfd one{.fd = guest.get(), .events = POLLOUT, .revents = 0};
                    if (::poll(&one, 1, 5'000) <= 0) break;
                    const ssize_t sent =
                        ::send(guest.get(), said.data() + taken, said.size() - taken, MSG_NOSIGNAL | MSG_DONTWAIT);
                    if (sent <= 0) break;
                    taken += static_cast<std::size_t>(sent);
                }
                char one = 0;
                // Until the rank closes the connection.
                static_cast<void>(read_all(guest.get(), &one, 1));
            });
            const std::string what = un::concat({"kind ", static_cast<unsigned>(kind), ", ", bytes, " bytes: "});
            test::expect_fault(found, un::ErrorCode::peer_lost, {"does not have this world's key"}, what);
            BOOST_TEST(taken < std::size_t{1} << 25,
                       what << taken << " bytes were taken"); // more than the buffers of any system
        }
    }
}

// A peer that closes a connection may be a crowded listener, so the rank tries again. Garbage ends
// the connection, also at the second try.
BOOST_AUTO_TEST_CASE(garbage_after_a_connection_that_was_hung_up) {
    const un::Fault found = met([](int listener) {
        next_guest(listener).close();
        const un::detail::FileDescriptor guest = next_guest(listener);
        const std::string words(1000, 'x');
        static_cast<void>(::send(guest.get(), words.data(), words.size(), MSG_NOSIGNAL) + 0);
        std::string rest(1'000'000, '\0');
        // Until the rank closes the connection.
        static_cast<void>(read_all(guest.get(), rest.data(), rest.size()));
    });
    test::expect_fault(found, un::ErrorCode::peer_lost);
}

// Nothing is certain about a peer's signature but its size.
BOOST_AUTO_TEST_CASE(every_code_of_a_signature_has_a_name) {
    for (unsigned code = 0; code < 256; ++code) {
        const auto one = static_cast<std::uint8_t>(code);
        for (const un::Signature& signature :
             {un::Signature{.collective = one}, un::Signature{.reduction = one}, un::Signature{.element = one},
              un::Signature{.caller = one}, un::Signature{.collective = one, .reduction = one, .element = one}})
            BOOST_TEST(un::detail::describe(signature).size() < 200u, "code " << code);
    }
    BOOST_TEST(un::name_of(static_cast<un::ElementType>(248)) == "unknown");
}

BOOST_AUTO_TEST_CASE(an_element_that_does_not_exist) {
    test::expect_fault(answered_with(100, [](auto& header) { header.envelope.signature.element = 248; }),
                       un::ErrorCode::mismatch, {"float32", "unknown"});
}

BOOST_AUTO_TEST_CASE(a_frame_that_has_no_place_on_an_open_connection) {
    using Kind = un::detail::TcpFrame;
    for (const Kind kind : {static_cast<Kind>(0), static_cast<Kind>(4), static_cast<Kind>(77)})
        test::expect_fault(answered_with(100, [=](auto& header) { header.kind = kind; }), un::ErrorCode::peer_lost,
                           {"garbage"});
}

// A rank's address comes from the rendezvous. It names a host and a port, and no other kind of
// socket.
BOOST_AUTO_TEST_CASE(an_address_of_another_kind) {
    un::detail::TcpEntrance entrance{.interface = un::detail::find_interface("127.0.0.1", false)};
    const un::detail::TcpAddress good = entrance.address();
    un::detail::TcpAddress read;
    BOOST_TEST(read.read(good.text()));
    for (const int family : {AF_UNSPEC, AF_UNIX, AF_NETLINK, AF_INET6, 0xffff}) {
        un::detail::TcpAddress bad = good;
        bad.socket.storage.ss_family = static_cast<sa_family_t>(family);
        BOOST_TEST(!read.read(bad.text()), "family " << family);
    }
    for (const unsigned length : {0u, 1u, 15u, 17u, 128u, ~0u}) {
        un::detail::TcpAddress bad = good;
        bad.socket.length = length;
        BOOST_TEST(!read.read(bad.text()), "length " << length);
    }
}

// A length becomes memory only if the posted receive has that size.
BOOST_AUTO_TEST_CASE(a_message_that_is_longer_than_what_was_awaited) {
    for (const std::size_t count : {std::size_t{100}, std::size_t{100'000}}) {
        for (const std::uint64_t bytes :
             {std::uint64_t{1} << 20, std::uint64_t{1} << 32, std::uint64_t{1} << 40, std::uint64_t{1} << 47}) {
            const un::Fault found = answered_with(count, [&](auto& header) { header.envelope.bytes = bytes; });
            test::expect_fault(found, un::ErrorCode::mismatch, {"expected", std::to_string(bytes)});
        }
    }
}

// Without a posted receive, a message may not exceed the host's memory.
BOOST_AUTO_TEST_CASE(a_message_that_no_host_has_memory_for) {
    for (const std::uint64_t bytes : {std::uint64_t{1} << 42, std::uint64_t{1} << 47}) {
        const un::Fault found = answered_with(100, [&](auto& header) {
            header.envelope.bytes = bytes;
            header.envelope.tag.position ^= std::uint64_t{1} << 62;
        });
        test::expect_fault(found, un::ErrorCode::refused, {"memory", std::to_string(bytes)});
    }
}

// Without a posted receive, memory grows as the message arrives. All of its bytes are right.
BOOST_AUTO_TEST_CASE(messages_that_come_before_they_are_awaited) {
    const auto world = std::make_shared<un::Tcp::World>(2);
    test::Group here{un::Tcp(world, 0)}, there{un::Tcp(world, 1)};
    for (const std::size_t count : {1'000u, 262'144u, 262'145u, 1'000'000u, 3'333'333u}) {
        std::vector<std::uint32_t> data(count), found(count), small{7}, got{0};
        for (std::size_t i = 0; i < count; ++i) data[i] = static_cast<std::uint32_t>(i * 2654435761u);
        un::Operation large = un::start_send(there, data, 0, 1), second = un::start_send(there, data, 0, 2),
                      last = un::start_send(there, small, 0, 3);
        un::Operation awaited = un::start_receive(here, got, 1, 3);
        const un::nanoseconds until = un::steady_now() + 30'000'000'000;
        for (bool done = false; !done && un::steady_now() < until;) {
            done = awaited.poll();
            done = large.poll() && done;
            done = second.poll() && done;
            done = last.poll() && done;
        }
        awaited.wait(5s);
        for (const int tag : {2, 1}) {
            std::fill(found.begin(), found.end(), 0u);
            un::start_receive(here, found, 1, tag).wait(5s);
            BOOST_TEST((found == data), count << " elements, tag " << tag);
        }
        BOOST_TEST(got[0] == 7u);
        large.wait(5s), second.wait(5s), last.wait(5s);
    }
}

BOOST_AUTO_TEST_SUITE_END()

} // namespace hostile_test

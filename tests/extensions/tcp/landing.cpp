// A large message goes directly to the target of a posted receive if it is as expected, and
// otherwise not.
#include "support.hpp"
#include "support/heap.hpp"

#include <algorithm>
#include <cstring>
#include <thread>

namespace landing_test {
namespace {

namespace un = unisono;

struct Seen {
    const std::byte* at = nullptr;
    bool sent = false;
    int sent_later = 0; ///< tokens of sends
    bool right = false;
    std::byte first{};
    void received(un::Token, const un::Envelope& envelope, const std::byte* data) {
        at = data;
        right = std::all_of(data, data + envelope.bytes, [&](std::byte each) { return each == first; });
    }
};

struct Sink final : un::EndpointSink {
    Seen& seen;
    explicit Sink(Seen& to) : seen(to) {}
    void sent(un::Token) override {
        seen.sent = true;
        ++seen.sent_later;
    }
    void received(un::Token token, const un::Envelope& envelope, const std::byte* data) override {
        seen.received(token, envelope, data);
    }
};

template <class Done>
void drive(un::Tcp& end, Seen& seen, const Done& done) {
    Sink sink{seen};
    const un::nanoseconds until = un::steady_now() + 50'000'000'000;
    for (std::uint32_t attempt = 0; !done() && un::steady_now() < until; ++attempt) {
        end.progress(sink);
        end.idle(attempt, until);
    }
}

/// One message of `bytes` whose receiver expects `expected` bytes and a signature with `count`.
/// Returns whether it arrived in the target.
bool lands(std::size_t bytes, std::size_t expected, std::uint64_t count) {
    const auto shared = std::make_shared<un::Tcp::World>(2);
    const un::Tag tag{7, 9};
    const un::Signature signature{.collective = 1, .schedule = 2, .count = 3};
    un::Signature other = signature;
    other.count = count;
    std::vector<std::byte> from(bytes, std::byte{42}), target(std::max(bytes, expected), std::byte{1});
    Seen receiver, sender;
    receiver.first = std::byte{42};
    std::thread peer([&] {
        un::Tcp end(shared, 1);
        sender.sent = end.send(0, {tag, signature, bytes}, from.data(), 5);
        drive(end, sender, [&] { return sender.sent; });
    });
    {
        un::Tcp end(shared, 0);
        end.receive(1, {tag, other, expected}, 6, target.data());
        drive(end, receiver, [&] { return receiver.at != nullptr; });
        peer.join(); // it may still be sending its goodbye
    }
    BOOST_TEST(receiver.right, bytes << " bytes");
    const bool there = receiver.at == target.data();
    const bool untouched =
        std::all_of(target.begin(), target.end(), [](std::byte each) { return each == std::byte{1}; });
    BOOST_TEST(there != untouched, bytes << " bytes");
    return there;
}

/// A wire on which the messages of a script arrive: two with one tag, the second before the first
/// is complete.
struct TwiceWire {
    static constexpr std::size_t lands_from = 16;
    un::Envelope envelope;
    int polls = 0;

    bool send(int, const un::Envelope&, const std::byte*, un::Token) { return true; }
    template <class Handler>
    void poll(Handler& handler) {
        if (++polls != 1) return;
        const std::uint32_t first = handler.begin(1, envelope, envelope.bytes);
        std::memset(handler.memory(first), 1, envelope.bytes);
        const std::uint32_t second = handler.begin(1, envelope, envelope.bytes);
        handler.complete(first); // its receiver owns the memory from here on
        std::memset(handler.memory(second), 2, envelope.bytes);
        handler.complete(second);
    }
    void idle(std::uint32_t, un::nanoseconds) {}
    void forget() {}
    void goodbye(un::nanoseconds) {}
    [[nodiscard]] bool lost(int) const { return false; }
    [[nodiscard]] bool said_goodbye(int) const { return false; }
    bool quiet(int) { return true; }
    [[nodiscard]] bool sending(int) const { return false; }
    [[nodiscard]] std::string describe(int) const { return "a script"; }
};

} // namespace
} // namespace landing_test

BOOST_AUTO_TEST_SUITE(landing)

BOOST_AUTO_TEST_CASE(what_is_expected_needs_no_bounce_buffer) {
    BOOST_TEST(landing_test::lands(131072, 131072, 3));
    BOOST_TEST(landing_test::lands(3 << 20, 3 << 20, 3));
}

BOOST_AUTO_TEST_CASE(what_is_not_expected_touches_nothing) {
    // Another size: the group will report it.
    BOOST_TEST(!landing_test::lands(1 << 20, (1 << 20) + 16, 3));
    BOOST_TEST(!landing_test::lands(1 << 20, 1 << 20, 4));             // another signature
    BOOST_TEST(!landing_test::lands((1 << 20) + 4, (1 << 20) + 4, 3)); // padding would follow it
    BOOST_TEST(!landing_test::lands(16384, 16384, 3));                 // small ones share reads
}

// Only a faulty peer sends them.
BOOST_AUTO_TEST_CASE(two_messages_with_one_tag_share_no_target) {
    namespace un = unisono;
    const un::Envelope envelope{{7, 9}, {.collective = 1, .schedule = 2, .count = 3}, 4096};
    un::detail::FramedEndpoint<landing_test::TwiceWire> end(std::make_shared<un::Tcp::World>(2), 0, {envelope},
                                                            {.name = "a script"});
    std::vector<std::byte> target(envelope.bytes);
    end.receive(1, envelope, 6, target.data());
    landing_test::Seen receiver;
    receiver.first = std::byte{1};
    landing_test::Sink sink{receiver};
    end.progress(sink);
    BOOST_TEST(receiver.at == target.data());
    BOOST_TEST(std::all_of(target.begin(), target.end(), [](std::byte each) { return each == std::byte{1}; }));
}

// Its header is read alone.
BOOST_AUTO_TEST_CASE(what_comes_before_a_large_message_that_is_awaited) {
    namespace un = unisono;
    const auto shared = std::make_shared<un::Tcp::World>(2);
    const un::Signature signature{.collective = 1, .schedule = 2, .count = 3};
    constexpr std::size_t large = 100'000;
    const std::vector<std::byte> from(large, std::byte{42});
    const auto envelope = [&](std::uint64_t position, std::size_t bytes) {
        return un::Envelope{{7, position}, signature, bytes};
    };
    std::thread peer([&] {
        un::Tcp end(shared, 1);
        landing_test::Seen sender;
        int waits = 0;
        // Nothing waits for these before the end.
        for (const std::size_t bytes : {0u, 5u, 16'384u, 16'385u})
            waits += end.send(0, envelope(bytes, bytes), from.data(), 1) ? 0 : 1;
        waits += end.send(0, envelope(1, large), from.data(), 2) ? 0 : 1;
        landing_test::drive(end, sender, [&] { return sender.sent_later == waits; });
    });
    {
        un::Tcp end(shared, 0);
        landing_test::Seen receiver;
        receiver.first = std::byte{42};
        // To be combined, so without a target.
        end.receive(1, envelope(1, large), 6, nullptr);
        landing_test::drive(end, receiver, [&] { return receiver.at != nullptr; });
        BOOST_TEST(receiver.right);
        for (const std::size_t bytes : {0u, 5u, 16'384u, 16'385u}) {
            receiver = {.first = std::byte{42}};
            end.receive(1, envelope(bytes, bytes), 7, nullptr);
            landing_test::drive(end, receiver, [&] { return receiver.at != nullptr || receiver.right; });
            BOOST_TEST(receiver.right, bytes << " bytes");
        }
        peer.join();
    }
}

// Entries that have left a queue that is never empty take no memory.
BOOST_AUTO_TEST_CASE(a_queue_that_is_never_empty) {
    namespace un = unisono;
    int ends[2];
    BOOST_TEST_REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
    const un::detail::FileDescriptor theirs(ends[1]);
    un::detail::TcpLink link(1);
    link.become(un::detail::TcpLink::State::open, un::detail::FileDescriptor(ends[0]));
    std::vector<std::byte> data(8192), read(16384);
    const un::Envelope envelope{{7, 9}, {}, data.size()};
    un::Token next = 0, out = 0;
    struct Order : un::detail::AnyFrameHandler {
        un::Token& out;
        bool right = true;
        explicit Order(un::Token& last) : out(last) {}
        void sent(un::Token token) { right = right && token == ++out; }
    } order(out);
    while (link.send(envelope, data.data(), next + 1)) out = ++next;
    ++next;
    for (int i = 0; i < 200; ++i) link.send(envelope, data.data(), ++next);
    const std::size_t before = test::heap_bytes();
    bool always = true;
    for (int i = 0; i < 30'000; ++i) {
        while (next - out > 200 && ::recv(theirs.get(), read.data(), read.size(), MSG_DONTWAIT) > 0) link.flush(order);
        always = always && link.is_sending();
        link.send(envelope, data.data(), ++next);
    }
    const std::size_t now = test::heap_bytes();
    BOOST_TEST(always);
    BOOST_TEST(order.right);
    BOOST_TEST(out > 29'000u);
    BOOST_TEST(now < before + 500'000, now - before << " bytes more");
}

BOOST_AUTO_TEST_SUITE_END()

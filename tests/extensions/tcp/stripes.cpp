// Several connections to a peer: large messages are split over all of them, and nothing else
// changes.
#include "support.hpp"

#include "support/allocation_counter.hpp"
#include "support/fails.hpp"

#include <chrono>
#include <csignal>
#include <functional>
#include <sys/resource.h>
#include <sys/socket.h>
#include <thread>

namespace stripes_test {
namespace {

namespace un = unisono;
namespace d = unisono::detail;
using namespace std::chrono_literals;
using test::Group;

const char* const variable = "UNISONO_TCP_CONNECTIONS";

/// A rank that splits messages of at least `from` bytes.
un::Tcp striped(const std::shared_ptr<un::Tcp::World>& world, int rank, int connections, std::size_t from) {
    d::TcpEntrance entrance = d::open_entrance({.connections = connections}, false);
    entrance.striped_bytes = from;
    return {world, rank, std::move(entrance)};
}

std::vector<std::uint8_t> numbers(std::size_t bytes, std::size_t seed) {
    std::vector<std::uint8_t> made(bytes);
    for (std::size_t i = 0; i < bytes; ++i) made[i] = static_cast<std::uint8_t>((i * 2654435761u + seed * 40503u) >> 7);
    return made;
}

/// Drives the operations until all are done.
void drive(std::vector<un::Operation>& all) {
    const un::nanoseconds until = un::steady_now() + 50'000'000'000;
    for (bool done = false; !done && un::steady_now() < until;) {
        done = true;
        for (un::Operation& one : all) done = one.poll() && done;
    }
    for (un::Operation& one : all) one.wait(5s);
}

} // namespace

BOOST_AUTO_TEST_SUITE(tcp_stripes)

BOOST_AUTO_TEST_CASE(the_same_bits_over_any_number_of_connections) {
    std::vector<std::vector<float>> one;
    for (const int connections : {1, 2, 4}) {
        const test::Variable said(variable, std::to_string(connections));
        const test::NoSocketLeft left;
        std::vector<std::vector<float>> found;
        test::on_ranks(3, [&](Group& group, test::Findings& findings) {
            for (const std::size_t count : {0u, 5u, 1000u, 100'000u, 700'001u, 3'000'000u}) {
                std::vector<float> data(count);
                float* const at = data.data(); // without a call for each of millions
                for (std::size_t i = 0; i < count; ++i)
                    at[i] = 1.0f / static_cast<float>(i % 1000 + 3 * static_cast<std::size_t>(group.rank()) + 1);
                std::vector<float> ring = data;
                un::all_reduce(group, data);
                un::all_reduce(group, ring, un::Sum{}, un::RingSchedule{});
                if (group.rank() == 0) found.push_back(data), found.push_back(ring);
                if (count == 1000)
                    findings.expect(group.endpoint().connections() <= 2, "small messages need one connection");
            }
            findings.expect(group.endpoint().connections() == static_cast<std::size_t>(2 * connections),
                            "connections: " + std::to_string(group.endpoint().connections()));
        });
        if (connections == 1) one = found;
        BOOST_TEST_REQUIRE(found.size() == one.size());
        // None is NaN or zero.
        for (std::size_t i = 0; i < one.size(); ++i) BOOST_TEST((found[i] == one[i]));
    }
}

// Stripes of one unit and more; sizes that no number of stripes divides; more data in flight than
// any buffer holds. The last message sent is the first received, and some are complete before a
// receive is posted.
BOOST_AUTO_TEST_CASE(many_in_flight_out_of_order) {
    for (const int connections : {2, 3, 4}) {
        const auto world = std::make_shared<un::Tcp::World>(2);
        Group here{striped(world, 0, connections, 256)}, there{striped(world, 1, connections, 256)};
        std::vector<std::vector<std::uint8_t>> out, back, in, at_there;
        std::vector<un::Operation> all;
        for (const std::size_t bytes : {256u, 3u, 257u, 271u, 65'537u, 0u, 255u, 1000u, 4096u, 99'999u, 5'000'003u,
                                        272u, 16'384u, 3'000'000u, 1u, 1'048'577u, 300'000u, 8'000'016u}) {
            out.push_back(numbers(bytes, out.size()));
            back.push_back(numbers(bytes, 100 + out.size()));
            in.emplace_back(bytes);
            at_there.emplace_back(bytes);
        }
        const auto count = static_cast<int>(out.size());
        const auto at = [](auto& list, int i) -> auto& { return list[static_cast<std::size_t>(i)]; };
        for (int i = 0; i < count; ++i) {
            all.push_back(un::start_send(here, at(out, i), 1, i));
            all.push_back(un::start_send(there, at(back, i), 0, i));
        }
        for (int i = 0; i < 3000; ++i)
            for (un::Operation& one : all) static_cast<void>(one.poll());
        for (int i = count; i-- > 0;) {
            all.push_back(un::start_receive(there, at(at_there, i), 0, i));
            all.push_back(un::start_receive(here, at(in, i), 1, i));
        }
        drive(all);
        BOOST_TEST((at_there == out && in == back), connections << " connections");
        BOOST_TEST(here.endpoint().connections() == static_cast<std::size_t>(connections));
    }
}

BOOST_AUTO_TEST_CASE(what_was_sent_before_leaving_arrives_over_all_connections) {
    const test::Variable said(variable, "4");
    test::on_ranks(3, [&](Group& group, test::Findings& findings) {
        const std::vector<std::uint8_t> data = numbers(1'200'003, 1);
        if (group.rank() == 0) return un::send(group, data, 2); // and ends
        if (group.rank() == 1) return;                          // immediately
        std::this_thread::sleep_for(50ms);
        std::vector<std::uint8_t> in(data.size());
        un::receive(group, in, 0);
        findings.expect(in == data, "received");
    });
}

BOOST_AUTO_TEST_CASE(a_striped_step_does_not_allocate) {
    const test::Variable said(variable, "2");
    test::on_ranks(2, [&](Group& group, test::Findings& findings) {
        std::vector<float> large(300'000);
        for (int i = 0; i < 100; ++i) un::all_reduce(group, large);
        int without = 0; // see a_step_does_not_allocate
        for (int i = 0; i < 100; ++i) {
            const std::size_t before = unisono_test::allocations_of_thread();
            un::all_reduce(group, large);
            without += unisono_test::allocations_of_thread() == before;
        }
        findings.expect(without >= 25, "only " + std::to_string(without) + " of 100 steps do not allocate");
    });
}

BOOST_AUTO_TEST_CASE(options) {
    const un::Environment said{{variable, "4"}};
    BOOST_TEST(un::TcpOptions{}.with({}).connections == 0);
    BOOST_TEST(un::TcpOptions{}.with(said).connections == 4);
    BOOST_TEST((un::TcpOptions{.connections = 2}.with(said).connections == 2));
    const auto refused = [](const un::TcpOptions& given, const un::Environment& environment, const std::string& found) {
        test::fails(un::ErrorCode::bad_input, {variable, found, "1 to 64"},
                    [&] { static_cast<void>(given.with(environment)); });
    };
    for (const char* const wrong : {"0", "65", "-1", "x", "", "2x"}) refused({}, {{variable, wrong}}, d::quoted(wrong));
    for (const int wrong : {-1, 65}) refused({.connections = wrong}, {}, std::to_string(wrong));
}

// --- ranks that disagree, die or send invalid frames ---------------------------------------------

BOOST_AUTO_TEST_CASE(threads_that_disagree_on_the_number) {
    const auto world = std::make_shared<un::Tcp::World>(2);
    const un::Tcp one(world, 0, {.connections = 2});
    test::fails(un::ErrorCode::refused, {"rank 1 makes 3 connections", "rank 0 2", variable},
                [&] { un::Tcp(world, 1, {.connections = 3}); });
}

BOOST_AUTO_TEST_CASE(processes_that_disagree_on_the_number,
                     *boost::unit_test::enable_if<!test::under_thread_sanitizer>()) {
    const test::Shared<test::AllTold> told;
    test::run_joined(
        4, *told,
        [](un::ControlPlane&& plane) {
            const int connections = plane.rank() == 2 ? 4 : 2;
            return un::join<un::Tcp>(std::move(plane), {.timeout = 20s}, {.connections = connections});
        },
        [](Group&, const std::vector<int>&) {});
    test::expect(*told, 4, -1, un::ErrorCode::refused, {"rank 2 makes 4 connections", "rank 1 2", variable});
}

BOOST_AUTO_TEST_CASE(a_rank_that_is_killed_within_a_message,
                     *boost::unit_test::enable_if<!test::under_thread_sanitizer>()) {
    for (const bool sends : {true, false}) {
        const test::Shared<test::AllTold> told;
        test::run_joined(
            3, *told,
            [](un::ControlPlane&& plane) {
                return un::join<un::Tcp>(std::move(plane), {.timeout = 30s}, {.connections = 4});
            },
            [&](Group& world, const std::vector<int>&) {
                std::vector<float> data(16'000'000, 1.0f);
                un::barrier(world);
                if (world.rank() != 1) {
                    if (world.rank() == 2) un::receive(world, data, 0); // it fails as well
                    else if (sends) un::receive(world, data, 1);
                    else un::send(world, data, 1); // the system may take all of it
                    un::barrier(world);
                    return;
                }
                un::Operation large = sends ? un::start_send(world, data, 0) : un::start_receive(world, data, 0);
                const un::nanoseconds until = un::steady_now() + 5'000'000; // too short for 64 MB
                while (un::steady_now() < until) static_cast<void>(large.poll());
                ::raise(SIGKILL);
            });
        test::expect(*told, 3, 1, un::ErrorCode::peer_lost, {"rank 1"});
    }
}

/// Rank 1 of two, by hand: its connections to rank 0, which waits for a message of `bytes` bytes.
class Peer {
public:
    static constexpr std::size_t bytes = 1'000'000;

    /// `absent`: the connection that it has not made yet.
    explicit Peer(int connections, int absent = -1)
        : group_(un::Tcp(world_, 0, {.connections = std::max(2, connections)})) {
        group_.set_timeout(5s);
        for (int i = connections; i-- > 0;) { // the last one first
            if (i == absent) continue;
            sockets_.insert(sockets_.begin(), test::connected_to(group_));
            BOOST_TEST_REQUIRE(test::greet(
                sockets_.front().get(), world_->key(), [&] { group_.progress(); }, i));
        }
    }
    void say(std::size_t connection, const std::string& text) {
        for (std::size_t sent = 0; sent < text.size();) {
            const ssize_t now =
                ::send(sockets_[connection].get(), text.data() + sent, text.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
            if (now > 0) sent += static_cast<std::size_t>(now);
            else if (errno != EAGAIN) return;
            group_.progress();
        }
    }
    void say(std::size_t connection, d::TcpFrame kind, std::size_t message, std::size_t sent) {
        d::TcpHeader header;
        header.kind = kind;
        header.envelope.tag = {77, 1};
        header.envelope.bytes = message;
        say(connection, std::string(reinterpret_cast<const char*>(&header), sizeof header) + std::string(sent, 'x'));
    }
    void hang_up(std::size_t connection) { sockets_[connection].close(); }
    /// Starts to send a message that is split into stripes.
    [[nodiscard]] un::Operation start_send(std::span<const std::uint8_t> data) {
        return un::start_send(group_, data, 1);
    }
    /// The fault of rank 0.
    un::Fault fault() {
        std::vector<std::uint8_t> data(bytes);
        try {
            un::receive(group_, data, 1);
        } catch (const un::error& failed) {
            return failed.why();
        }
        return {};
    }
    [[nodiscard]] std::string state() const { return group_.endpoint().describe(1); }
    [[nodiscard]] bool is_let_in() {
        for (int i = 0; i < 500 && group_.endpoint().connections() == 0; ++i) {
            group_.progress();
            std::this_thread::sleep_for(1ms);
        }
        return group_.endpoint().connections() != 0;
    }

private:
    std::shared_ptr<un::Tcp::World> world_ = std::make_shared<un::Tcp::World>(2);
    Group group_;
    std::vector<d::FileDescriptor> sockets_;
};

BOOST_AUTO_TEST_CASE(one_of_two_connections_ends_within_a_message) {
    for (const std::size_t which : {std::size_t{0}, std::size_t{1}}) {
        Peer peer(2);
        peer.say(0, d::TcpFrame::stripe, Peer::bytes, 300'000);
        peer.say(1, d::TcpFrame::stripe, Peer::bytes, 300'000);
        peer.hang_up(which);
        const un::Fault found = peer.fault();
        test::expect_fault(found, un::ErrorCode::peer_lost);
        BOOST_TEST((found.message.find("connection 2 of 2") != std::string::npos) == (which == 1), found.message);
    }
}

/// The last of three connections may arrive before the second one, which never arrives.
BOOST_AUTO_TEST_CASE(a_message_leaves_before_all_connections_are_there) {
    Peer peer(3, 1);
    BOOST_TEST_REQUIRE(peer.is_let_in());
    const std::vector<std::uint8_t> data(Peer::bytes);
    un::Operation sent = peer.start_send(data);
    peer.hang_up(0);
    BOOST_TEST(name_of(peer.fault().code) == "peer_lost");
    BOOST_CHECK_THROW(sent.wait(), un::error);
}

BOOST_AUTO_TEST_CASE(stripes_that_mean_nothing) {
    const std::function<void(Peer&)> all[] = {
        // Whole messages arrive on the first connection.
        [](Peer& peer) { peer.say(1, d::TcpFrame::message, 16, 16); },
        [](Peer& peer) { peer.say(1, d::TcpFrame::message, 100'000, 100'000); },
        [](Peer& peer) { peer.say(1, d::TcpFrame::stripe, 16, 0); }, // none for the second
        [](Peer& peer) { peer.say(0, d::TcpFrame::stripe, 0, 0); },
        [](Peer& peer) { // stripes of different messages
            peer.say(0, d::TcpFrame::stripe, Peer::bytes, 0);
            peer.say(1, d::TcpFrame::stripe, Peer::bytes + 16, 0);
        },
    };
    for (const auto& speak : all) {
        Peer peer(2);
        speak(peer);
        test::expect_fault(peer.fault(), un::ErrorCode::peer_lost, {"garbage"});
    }
}

// If a peer's first connection is silent, the rank uses no more memory than has arrived, and does
// not spin.
BOOST_AUTO_TEST_CASE(a_stripe_waits_for_the_memory_before_it) {
    Peer peer(2);
    peer.say(1, d::TcpFrame::stripe, std::size_t{1} << 32, 4096); // no receive is posted for it
    rusage before{}, after{};
    ::getrusage(RUSAGE_THREAD, &before);
    const un::Fault found = peer.fault();
    ::getrusage(RUSAGE_THREAD, &after);
    test::expect_fault(found, un::ErrorCode::timeout);
    // A rank that spins gives up its core involuntarily.
    const long slept = after.ru_nvcsw - before.ru_nvcsw;
    BOOST_TEST(slept > 100, "it slept " << slept << " times in 5 s");
}

BOOST_AUTO_TEST_CASE(a_connection_with_a_number_that_is_not_agreed) {
    Peer agreed(2);
    BOOST_TEST(agreed.is_let_in());
    const auto world = std::make_shared<un::Tcp::World>(2);
    Group group(un::Tcp(world, 0, {.connections = 2}));
    for (const int number : {1, 2, 65535}) {
        const d::FileDescriptor socket = test::connected_to(group);
        BOOST_TEST(test::greet(
                       socket.get(), world->key(), [&] { group.progress(); }, number) == (number == 1));
    }
}

BOOST_AUTO_TEST_SUITE_END()

} // namespace stripes_test

// The protocol of the star's centre without sockets or clocks, with everything that a network can
// send to it.

#include "support/fails.hpp"
#include "support/heap.hpp"

#include <unisono/core/random.hpp>
#include <unisono/extensions/launch/control/hub_state.hpp>

#include <algorithm>
#include <cstdlib>
#include <map>

namespace un = unisono;
namespace d = un::detail;
using d::FrameKind;
using d::HubState;

namespace {

constexpr un::nanoseconds second = 1'000'000'000;

const un::JobToken token = un::JobToken::derived_from("the job's");

un::Blob hello(int rank, int world = 3, std::uint64_t claimant = 0) {
    return d::encode(d::Hello{.nonce = un::JobToken::random().value(),
                              .world = static_cast<std::uint32_t>(world),
                              .rank = static_cast<std::uint32_t>(rank),
                              .claimant = claimant == 0 ? static_cast<std::uint64_t>(rank) + 100 : claimant,
                              .host = 1,
                              .pid = static_cast<std::uint32_t>(1000 + rank)});
}

un::Blob bytes_of(const d::Digest& digest) {
    const auto bytes = std::as_bytes(std::span(digest));
    return {bytes.begin(), bytes.end()};
}

un::Blob contribution(std::uint32_t round, const std::string& text) {
    d::WireWriter out;
    out.u32(round);
    out.bytes(std::as_bytes(std::span(text)));
    return d::make_frame(FrameKind::contribution, out.take());
}

un::Blob answer(std::uint32_t number, const un::Wait& wait) {
    d::WireWriter out;
    out.u32(number);
    d::write(out, wait);
    return d::make_frame(FrameKind::answer, out.take());
}

/// A hub with the frames that it has sent on each connection.
struct Bench {
    explicit Bench(int world = 3) : state({.world = world, .token = token}) {}

    void give(std::uint32_t connection, const un::Blob& bytes) {
        state.received(connection, bytes, now);
        collect();
    }
    void open(std::uint32_t connection) {
        sent.erase(connection);
        closed.erase(connection);
        state.opened(connection, now);
        collect();
    }
    void close(std::uint32_t connection) {
        state.closed(connection);
        collect();
    }
    /// The challenge that a connection got.
    d::Challenge challenge(std::uint32_t connection) {
        const un::Blob& bytes = sent[connection];
        if (bytes.size() < d::Challenge::bytes) return {};
        return d::parse_challenge(std::span(bytes).first(d::Challenge::bytes)).value_or(d::Challenge{});
    }
    /// A rank that has this secret, or another one, connects.
    void enter(std::uint32_t connection, const un::Blob& hello, const un::JobToken& secret = token) {
        open(connection);
        give(connection, hello);
        const d::Challenge asked = challenge(connection);
        sessions.insert_or_assign(
            connection, d::ControlSession::begin(d::ControlSession::Side::caller, secret, hello, asked.nonce));
        give(connection, bytes_of(d::proof_of_caller(secret, hello, asked.nonce)));
    }
    /// An admitted rank sends a frame.
    void say(std::uint32_t connection, un::Blob frame) {
        sessions[connection].out.close(frame);
        give(connection, frame);
    }
    void all_enter(int world = 3) {
        for (int rank = 0; rank < world; ++rank) enter(static_cast<std::uint32_t>(rank) + 1, hello(rank, world));
    }
    void collect() {
        for (const auto& action : state.take_actions()) {
            auto& bytes = sent[action.connection];
            bytes.insert(bytes.end(), action.bytes.begin(), action.bytes.end());
            if (action.close) closed[action.connection] = true;
        }
    }
    /// The kinds of frames that a connection received, as letters in the order of FrameKind's
    /// values.
    std::string got(std::uint32_t connection) {
        std::string kinds;
        std::span<const std::byte> bytes = sent[connection];
        if (bytes.size() < d::Challenge::bytes) return kinds;
        bytes = bytes.subspan(d::Challenge::bytes);
        d::Seal seal = sessions[connection].in;
        d::Frame frame;
        std::size_t used = 0;
        while (seal.open(bytes, d::most_frame_bytes, frame, used) == d::Parsed::frame) {
            // Accepted, refused, complete, ...
            kinds += "?.....ARCGVILX"[static_cast<std::size_t>(frame.kind) + 1];
            last.assign(frame.payload.begin(), frame.payload.end());
            bytes = bytes.subspan(used);
        }
        return kinds;
    }
    un::Fault fault() const { return state.first_fault().value_or(un::Fault{}); }

    HubState state;
    un::nanoseconds now = 0;
    std::map<std::uint32_t, un::Blob> sent;
    std::map<std::uint32_t, bool> closed;
    std::map<std::uint32_t, d::ControlSession> sessions; ///< of the ranks' side
    un::Blob last;
};

bool has(const un::Fault& fault, const std::string& word) { return fault.message.find(word) != std::string::npos; }

} // namespace

BOOST_AUTO_TEST_SUITE(launch_hub)

BOOST_AUTO_TEST_CASE(the_world_begins_when_all_are_here) {
    Bench hub;
    hub.enter(1, hello(0));
    hub.enter(2, hello(2));
    BOOST_CHECK_EQUAL(hub.got(1), "A");
    BOOST_CHECK(!hub.state.complete());
    const un::Blob bytes = hello(1);
    hub.open(3);
    for (const std::byte byte : bytes) hub.give(3, {byte}); // one at a time
    const d::Nonce asked = hub.challenge(3).nonce;
    hub.sessions.insert_or_assign(3, d::ControlSession::begin(d::ControlSession::Side::caller, token, bytes, asked));
    for (const std::byte byte : bytes_of(d::proof_of_caller(token, bytes, asked))) hub.give(3, {byte});
    for (const std::uint32_t each : {1u, 2u, 3u}) BOOST_CHECK_EQUAL(hub.got(each), "AC");
    BOOST_CHECK(hub.state.complete());
}

BOOST_AUTO_TEST_CASE(nobody_comes_in_without_the_secret) {
    Bench hub;
    for (std::uint32_t bit = 0; bit < 128; ++bit) { // a secret that differs in one bit
        auto value = token.value();
        value[bit / 8] = static_cast<std::uint8_t>(value[bit / 8] ^ (1u << (bit % 8)));
        hub.enter(bit + 1, hello(0), un::JobToken{value});
        BOOST_CHECK(hub.closed[bit + 1] && hub.got(bit + 1).empty());
    }
    hub.open(500);
    hub.give(500, un::Blob(3, std::byte{'x'})); // closed immediately, without waiting for more
    BOOST_CHECK(hub.closed[500] && hub.sent[500].empty());
    hub.open(502);
    hub.give(502, hello(0)); // proves nothing
    hub.open(501);
    hub.now = 6 * second; // silent for too long
    hub.state.tick(hub.now);
    hub.collect();
    BOOST_CHECK(hub.closed[501] && hub.closed[502]);
    BOOST_CHECK(!hub.state.first_fault());
    hub.all_enter();
    BOOST_CHECK(hub.state.complete());
}

BOOST_AUTO_TEST_CASE(a_rank_that_comes_again_replaces_itself_and_another_is_refused) {
    Bench hub;
    hub.enter(1, hello(0));
    // The same process, which gave up on its first connection.
    hub.enter(2, hello(0));
    BOOST_CHECK(hub.closed[1] && !hub.closed[2] && !hub.state.first_fault());
    hub.close(1);
    BOOST_CHECK(!hub.state.first_fault());
    hub.enter(3, hello(0, 3, 7));
    BOOST_CHECK_EQUAL(hub.got(3), "R");
    BOOST_CHECK_EQUAL(hub.got(2), "AV");
    BOOST_CHECK(has(hub.fault(), "two processes claim to be rank 0"));

    Bench running;
    running.all_enter();
    running.enter(9, hello(0, 3, 7)); // a complete world is not disturbed
    BOOST_CHECK_EQUAL(running.got(9), "R");
    running.enter(10, hello(0)); // nor by the same process again
    BOOST_CHECK_EQUAL(running.got(10), "R");
    BOOST_CHECK(!running.closed[1] && running.state.rank_of(1) == 0);
    BOOST_CHECK(!running.state.first_fault());
}

BOOST_AUTO_TEST_CASE(a_goodbye_before_the_world_begins_makes_room) {
    Bench hub;
    hub.enter(1, hello(1));
    hub.say(1, d::make_frame(FrameKind::goodbye));
    BOOST_CHECK(!hub.state.first_fault());
    hub.all_enter();
    BOOST_CHECK(hub.state.complete());
}

BOOST_AUTO_TEST_CASE(the_end_of_a_connection_is_a_death_and_a_goodbye_is_none) {
    Bench hub;
    hub.all_enter();
    hub.say(2, d::make_frame(FrameKind::goodbye));
    hub.close(2);
    BOOST_CHECK(!hub.state.first_fault());
    BOOST_CHECK_EQUAL(hub.got(1), "ACL");
    hub.close(3);
    BOOST_CHECK(hub.fault().code == un::ErrorCode::peer_lost && hub.fault().peer == 2);
    BOOST_CHECK_EQUAL(hub.got(1), "ACLV");
    BOOST_CHECK(!hub.state.finished());
    hub.say(1, d::make_frame(FrameKind::goodbye));
    BOOST_CHECK(hub.state.finished());
}

BOOST_AUTO_TEST_CASE(rounds) {
    Bench hub;
    hub.all_enter();
    hub.say(1, contribution(0, "a"));
    hub.say(3, contribution(0, ""));
    BOOST_CHECK_EQUAL(hub.got(1), "AC");
    hub.say(2, contribution(0, "bb"));
    BOOST_CHECK_EQUAL(hub.got(1), "ACG");
    BOOST_CHECK_EQUAL(hub.last.size(), 4u + 4u + 1u + 4u + 2u + 4u);
    hub.say(2, contribution(1, "c"));
    // Twice in one round, which no program of this library does.
    hub.say(2, contribution(1, "c"));
    BOOST_CHECK(hub.fault().code == un::ErrorCode::mismatch && hub.fault().peer == 1);
}

BOOST_AUTO_TEST_CASE(a_timeout_is_looked_into) {
    const un::Fault late{.code = un::ErrorCode::timeout,
                         .rank = 0,
                         .peer = 1,
                         .operation = "all_reduce",
                         .sequence = 4,
                         .message = "late"};
    const un::Wait for_1{.operation = "all_reduce", .context = 1, .sequence = 4, .peers = {1}};
    const un::Wait for_2{.operation = "all_reduce", .context = 1, .sequence = 4, .peers = {2}};
    {
        Bench hub; // rank 2 does not answer
        hub.all_enter();
        hub.say(1, d::complaint_frame(late, for_1));
        BOOST_CHECK_EQUAL(hub.got(1), "AC"); // the rank that asks has reported what it waits for
        BOOST_CHECK_EQUAL(hub.got(2), "ACI");
        hub.say(2, answer(1, for_2));
        BOOST_CHECK(!hub.state.first_fault());
        hub.now = 2 * second;
        hub.state.tick(hub.now);
        BOOST_CHECK(hub.fault().peer == 2 && has(hub.fault(), "rank 2 does not answer") && has(hub.fault(), "late"));
    }
    {
        Bench hub; // rank 2 is known to be stopped
        hub.all_enter();
        hub.say(1, d::complaint_frame(late, for_1));
        BOOST_CHECK((hub.state.unanswered() == std::vector<int>{1, 2}));
        hub.say(2, answer(1, for_2));
        hub.state.found_stopped(2);
        BOOST_CHECK(hub.fault().peer == 2 && has(hub.fault(), "rank 2 is stopped"));
    }
    {
        Bench hub; // rank 2 computes
        hub.all_enter();
        hub.say(1, d::complaint_frame(late, for_1));
        hub.say(2, answer(1, for_2));
        hub.say(3, answer(7, for_1)); // an answer to another question does not count
        BOOST_CHECK(!hub.state.first_fault());
        hub.say(3, answer(1, {}));
        BOOST_CHECK(hub.fault().peer == 2 && has(hub.fault(), "rank 2 is in no call"));
    }
    {
        Bench hub; // rank 2 dies meanwhile, which is the first fault
        hub.all_enter();
        hub.say(1, d::complaint_frame(late, for_1));
        hub.close(3);
        BOOST_CHECK(hub.fault().code == un::ErrorCode::peer_lost && hub.fault().peer == 2);
    }
    {
        Bench hub; // a complaint that does not say what the rank waits for
        hub.all_enter();
        hub.say(1, d::complaint_frame(late, {}));
        hub.say(2, answer(1, {}));
        hub.state.found_stopped(2);
        BOOST_CHECK(hub.fault().peer == 2);
    }
}

BOOST_AUTO_TEST_CASE(root_causes) {
    using d::Answer;
    using d::Standing;
    const auto waits = [](d::List<int> peers, std::uint64_t sequence = 1) {
        return Answer{Standing::waits,
                      {.operation = "receive", .context = 1, .sequence = sequence, .peers = std::move(peers)}};
    };
    const auto cause = [](int reporter, const std::vector<Answer>& answers) {
        return d::find_root_cause(reporter, {answers.data(), answers.size()}).rank;
    };
    // Along a chain, to the rank that computes.
    BOOST_CHECK_EQUAL(cause(0, {waits({1}), waits({2}), waits({3}), {Standing::works, {}}}), 3);
    // A rank outside of the chain is not to blame, whatever it does.
    BOOST_CHECK_EQUAL(cause(0, {waits({1}), {Standing::works, {}}, {Standing::stopped, {}}}), 1);
    // Stopped is worse than silent, silent worse than gone, gone worse than computing.
    BOOST_CHECK_EQUAL(cause(0, {waits({1, 2, 3, 4}),
                                {Standing::works, {}},
                                {Standing::silent, {}},
                                {Standing::stopped, {}},
                                {Standing::left, {}}}),
                      3);
    BOOST_CHECK_EQUAL(cause(0, {waits({1, 2, 3}), {Standing::works, {}}, {Standing::silent, {}}, {Standing::left, {}}}),
                      2);
    BOOST_CHECK_EQUAL(cause(0, {waits({1, 2}), {Standing::works, {}}, {Standing::left, {}}}), 2);
    // Among equals, the one that is reached first.
    BOOST_CHECK_EQUAL(cause(0, {waits({2, 1}), {Standing::works, {}}, {Standing::works, {}}}), 2);
    BOOST_CHECK_EQUAL(cause(0, {waits({1}), waits({3, 2}), {Standing::silent, {}}, {Standing::silent, {}}}), 3);
    // All wait: the rank that waits for something else is to blame. In a circle of equal ranks,
    // none is.
    BOOST_CHECK_EQUAL(cause(0, {waits({1}), waits({2}), waits({0}, 2)}), 2);
    BOOST_CHECK_EQUAL(cause(0, {waits({1}), waits({2}), waits({0})}), -1);
    BOOST_CHECK_EQUAL(cause(1, {waits({1}), waits({})}), -1);
}

BOOST_AUTO_TEST_CASE(what_is_written_is_read_back) {
    const un::Fault fault{.code = un::ErrorCode::mismatch,
                          .rank = 1,
                          .peer = 2,
                          .operation = "x",
                          .sequence = ~0ull,
                          .message = std::string(20'000, 'm')};
    d::WireWriter out;
    d::write(out, fault);
    const un::Blob bytes = out.take();
    d::WireReader in(bytes);
    un::Fault back;
    BOOST_CHECK(d::read(in, 3, back) && in.finished());
    BOOST_CHECK(back.rank == 1 && back.peer == 2 && back.sequence == ~0ull && back.operation == "x");
    BOOST_CHECK_EQUAL(back.message.size(), d::most_text_bytes); // long texts are cut
    d::WireReader foreign(bytes);
    BOOST_CHECK(!d::read(foreign, 2, back)); // rank 2 is not in that world
    for (std::size_t cut = 0; cut < 40; ++cut) {
        const std::span<const std::byte> start(bytes.data(), cut);
        d::WireReader less(start);
        BOOST_CHECK(!d::read(less, 3, back));
    }
    const auto shown = d::Hello{.nonce = token.value(), .world = 9, .rank = 8, .claimant = 7, .host = 6, .pid = 5};
    BOOST_CHECK(d::parse_hello(d::encode(shown)) == shown);
}

// An attacker without the secret who can read and send everything.
BOOST_AUTO_TEST_CASE(a_recorded_handshake_proves_nothing) {
    Bench hub;
    const un::Blob shown = hello(1);
    hub.enter(1, shown);
    BOOST_REQUIRE_EQUAL(hub.got(1), "A");
    // Recorded on the way.
    const un::Blob proof = bytes_of(d::proof_of_caller(token, shown, hub.challenge(1).nonce));
    hub.say(1, d::make_frame(FrameKind::goodbye)); // the rank's place is free
    hub.open(2);
    hub.give(2, shown);
    hub.give(2, proof);
    BOOST_CHECK(hub.closed[2] && hub.got(2).empty() && !hub.state.first_fault());
    Bench next; // nor in the next job with the same secret
    next.open(1);
    next.give(1, shown);
    next.give(1, proof);
    BOOST_CHECK(next.closed[1] && next.got(1).empty() && !next.state.first_fault());
    BOOST_CHECK(hub.challenge(1).nonce != hub.challenge(2).nonce);
}

BOOST_AUTO_TEST_CASE(a_proof_is_good_for_one_place) {
    Bench hub;
    const un::Blob shown = hello(1);
    hub.open(1);
    hub.give(1, shown);
    // Nonce, world, rank, claimant, host, process, the other rank, connection, door.
    for (const std::size_t byte : {8u, 24u, 28u, 32u, 40u, 48u, 52u, 56u, 60u}) {
        un::Blob other = shown;
        other[byte] ^= std::byte{1};
        BOOST_CHECK(d::proof_of_caller(token, shown, hub.challenge(1).nonce) !=
                    d::proof_of_caller(token, other, hub.challenge(1).nonce));
    }
    BOOST_CHECK(!(token.of_job("one") == token.of_job("another")));
}

BOOST_AUTO_TEST_CASE(what_the_hub_proves_is_no_proof_of_a_rank) {
    Bench hub;
    hub.open(1);
    hub.give(1, hello(1));
    hub.give(1, bytes_of(hub.challenge(1).proof)); // sent back
    BOOST_CHECK(hub.closed[1] && hub.got(1).empty() && !hub.state.first_fault());
    hub.open(2);
    const un::Blob shown = hello(2);
    hub.give(2, shown);
    BOOST_CHECK(hub.challenge(2).proof == d::proof_of_keeper(token, shown, hub.challenge(2).nonce));
    BOOST_CHECK(hub.challenge(2).proof != d::proof_of_caller(token, shown, hub.challenge(2).nonce));
}

BOOST_AUTO_TEST_CASE(one_packet_ends_no_rendezvous) {
    Bench hub;
    hub.enter(1, hello(0));
    // Another world, a present rank, an absent one.
    for (std::uint32_t connection = 2; connection < 50; ++connection) {
        hub.open(connection);
        const un::Blob shown = hello(static_cast<int>(connection % 5), connection % 2 == 0 ? 4 : 3);
        hub.give(connection, shown);
        hub.give(connection, un::Blob(32 + connection, std::byte{7}));
        BOOST_CHECK(hub.closed[connection] && hub.got(connection).empty());
    }
    BOOST_CHECK(!hub.state.first_fault() && hub.got(1) == "A");
}

BOOST_AUTO_TEST_CASE(frames_that_are_changed_repeated_or_reordered) {
    const auto first = contribution(0, "a"), second = contribution(1, "b");
    const auto sealed = [](d::ControlSession& session, un::Blob frame) {
        session.out.close(frame);
        return frame;
    };
    const auto lost = [](const Bench& hub) {
        return hub.fault().code == un::ErrorCode::mismatch && hub.fault().peer == 0 && has(hub.fault(), "changed");
    };
    for (std::size_t byte = 4; byte < first.size() + d::Seal::bytes; ++byte) {
        Bench hub;
        hub.all_enter();
        un::Blob frame = sealed(hub.sessions[1], first);
        frame[byte] ^= std::byte{byte == 4 ? std::uint8_t{3} : std::uint8_t{1}}; // a valid kind
        hub.give(1, frame);
        BOOST_CHECK_MESSAGE(hub.fault().code == un::ErrorCode::mismatch && hub.fault().peer == 0, "byte " << byte);
        if (byte == 4 || byte >= 8) BOOST_CHECK_MESSAGE(lost(hub), "byte " << byte << ": " << hub.fault().message);
    }
    Bench repeated;
    repeated.all_enter();
    const un::Blob leaves = sealed(repeated.sessions[1], answer(7, {})); // harmless, once
    repeated.give(1, leaves);
    BOOST_CHECK(!repeated.state.first_fault());
    repeated.give(1, leaves);
    BOOST_CHECK(lost(repeated));
    Bench reordered;
    reordered.all_enter();
    static_cast<void>(sealed(reordered.sessions[1], answer(7, {}))); // held back
    reordered.give(1, sealed(reordered.sessions[1], answer(8, {})));
    BOOST_CHECK(lost(reordered));
    Bench others; // of another rank's connection
    others.all_enter();
    others.give(1, sealed(others.sessions[2], answer(7, {})));
    BOOST_CHECK(lost(others));
    Bench reflected; // what the hub itself has sent
    reflected.all_enter();
    const un::Blob said(reflected.sent[1].begin() + d::Challenge::bytes, reflected.sent[1].end());
    reflected.give(1, said);
    BOOST_CHECK(lost(reflected));
}

// Random and mutated bytes against a hub in every state, before and after proof.
// UNISONO_FUZZ_INPUTS is the number of inputs (300,000 by default; ten million take half a minute).
// UNISONO_FUZZ_SEED is the first seed.
BOOST_AUTO_TEST_CASE(fuzzed_inputs, *boost::unit_test::label("slow")) {
    const auto number = [](const char* name, long otherwise) {
        const char* text = std::getenv(name);
        return text != nullptr ? std::strtol(text, nullptr, 10) : otherwise;
    };
    const long inputs = number("UNISONO_FUZZ_INPUTS", 300'000);
    un::Mt19937 random{static_cast<std::uint64_t>(number("UNISONO_FUZZ_SEED", 1))};
    const auto below = [&](std::uint32_t n) { return random() % n; };
    const auto garbage = [&](std::size_t most) {
        un::Blob bytes(below(static_cast<std::uint32_t>(most) + 1));
        for (std::byte& byte : bytes) byte = static_cast<std::byte>(below(4) == 0 ? 0u : random());
        return bytes;
    };
    const auto mutate = [&](un::Blob bytes) {
        for (std::uint32_t i = below(4) + 1; i != 0 && !bytes.empty(); --i) {
            const std::size_t at = below(static_cast<std::uint32_t>(bytes.size()));
            switch (below(5)) {
            case 0: bytes[at] = static_cast<std::byte>(random()); break;
            case 1: bytes[at] ^= static_cast<std::byte>(1u << below(8)); break;
            case 2: bytes.resize(at); break;
            case 3:
                bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(at), static_cast<std::byte>(random()));
                break;
            default: bytes[at] = std::byte{0xff}; break;
            }
        }
        return bytes;
    };
    const un::JobToken wrong = un::JobToken::derived_from("another job's");
    const auto joined = [](un::Blob first, const un::Blob& second) {
        first.insert(first.end(), second.begin(), second.end());
        return first;
    };
    const auto frame = [&](std::uint32_t round) -> un::Blob {
        const un::Wait wait{.operation = "o", .sequence = 1, .peers = {static_cast<int>(below(3))}};
        switch (below(5)) {
        case 0: return contribution(round, "blob");
        case 1:
            return d::complaint_frame(
                {.code = static_cast<un::ErrorCode>(1 + below(7)), .rank = 0, .operation = "o", .message = "m"}, wait);
        case 2: return answer(below(3), wait);
        case 3: return d::make_frame(FrameKind::goodbye);
        default: return d::make_frame(static_cast<FrameKind>(below(16)), garbage(40));
        }
    };

    const std::size_t before_all = test::heap_bytes();
    std::size_t most = 0;
    Bench hub;
    d::Nonce recorded = {};
    long admitted = 0, worlds = 0, entered = 0, given = 0;
    std::uint32_t next = 10;
    for (long i = 0; i < inputs; ++i) {
        most = std::max(most, test::heap_bytes());
        if (i % 50 == 0) { // a new hub, in one of its states
            hub = Bench{};
            ++worlds;
            const std::uint32_t present = below(4);
            for (std::uint32_t rank = 0; rank < present; ++rank) hub.enter(rank + 1, hello(static_cast<int>(rank)));
        }
        hub.now += below(1000) * 1'000'000;
        // A stranger, whose token may be wrong in any way, but is never right.
        if (below(3) != 0) {
            const std::uint32_t connection = next++;
            const un::Blob shown = hello(static_cast<int>(below(4)), 3, below(3));
            un::Blob bytes;
            // 2: without a proof; 3: with a proof of another time.
            switch (below(5)) {
            case 0: bytes = garbage(200); break;
            case 1: bytes = joined(mutate(shown), garbage(80)); break;
            case 2: bytes = joined(shown, garbage(80)); break;
            case 3: bytes = joined(shown, bytes_of(d::proof_of_caller(token, shown, recorded))); break;
            default: bytes = joined(shown, bytes_of(d::proof_of_caller(wrong, shown, {}))); break;
            }
            if (below(2) == 0) {
                const un::Blob more = frame(0);
                bytes.insert(bytes.end(), more.begin(), more.end());
            }
            const auto before = hub.state.first_fault().has_value();
            const bool began = hub.state.complete();
            hub.open(connection);
            const std::size_t cut = bytes.empty() ? 0 : below(static_cast<std::uint32_t>(bytes.size()));
            hub.give(connection, un::Blob(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(cut)));
            hub.give(connection, un::Blob(bytes.begin() + static_cast<std::ptrdiff_t>(cut), bytes.end()));
            admitted += hub.state.rank_of(connection) >= 0 || hub.sent[connection].size() > d::Challenge::bytes ? 1 : 0;
            if (below(3) == 0) recorded = hub.challenge(connection).nonce;
            // A stranger changes nothing: it causes no fault and completes no world.
            admitted += before != hub.state.first_fault().has_value() || began != hub.state.complete() ? 1 : 0;
        } else if (below(4) == 0) {
            // A process with the secret, which may give a wrong rank.
            const std::uint32_t connection = next++;
            hub.enter(connection, below(2) == 0 ? hello(static_cast<int>(below(4)), 3, below(3)) : mutate(hello(0)));
            if (below(2) == 0) hub.say(connection, frame(0));
            ++entered;
        } else { // a member that may send anything
            const std::uint32_t connection = 1 + below(3);
            switch (below(3)) {
            case 0: hub.say(connection, frame(0)); break;
            case 1: hub.say(connection, mutate(frame(below(2)))); break;
            // Or a process between them.
            default: hub.give(connection, mutate(frame(below(2)))); break;
            }
            ++given;
        }
        if (below(20) == 0) hub.close(1 + below(3));
        hub.state.tick(hub.now);
        if (below(10) == 0) hub.state.found_stopped(static_cast<int>(below(3)));
        hub.collect();
        hub.sent.clear();
        hub.closed.clear();
    }
    BOOST_CHECK_EQUAL(admitted, 0);
    most -= std::min(before_all, most);
    BOOST_CHECK_MESSAGE(most > 0 && most <= std::size_t{64} << 20, most << " bytes were taken");
    BOOST_TEST_MESSAGE(inputs << " inputs, " << worlds << " hubs, " << entered << " handshakes with the secret, "
                              << given << " frames of members; at most " << most << " bytes taken");
}

BOOST_AUTO_TEST_SUITE_END()

// Mutated greetings and frames at their readers, with as few sockets as one process allows. No
// stranger gets in, no rank dies, and memory stays below a bound. UNISONO_FUZZ_INPUTS is the number
// of inputs (20,000 by default; ten million take some minutes). UNISONO_FUZZ_SEED is the first
// seed. Each 1,000 inputs have a seed, which reproduces a failure.
#include "support.hpp"
#include "support/heap.hpp"

#include <unisono/extensions/launch/control/wire.hpp>
#include <unisono/extensions/launch/rendezvous/rendezvous_file.hpp>

#include <cstdlib>

namespace mutations_test {
namespace {

namespace un = unisono;
namespace d = unisono::detail;

long number(const char* name, long otherwise) {
    const char* const text = std::getenv(name);
    return text != nullptr ? std::strtol(text, nullptr, 10) : otherwise;
}

class Random {
public:
    explicit Random(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}
    std::uint64_t operator()() {
        state_ ^= state_ << 13;
        state_ ^= state_ >> 7;
        state_ ^= state_ << 17;
        return state_ * 0x2545f4914f6cdd1du;
    }
    std::size_t below(std::size_t n) { return static_cast<std::size_t>((*this)() >> 20) % n; }

private:
    std::uint64_t state_;
};

std::string mutated(std::string bytes, Random& random) {
    for (std::size_t i = random.below(5); i != 0 && !bytes.empty(); --i) {
        const std::size_t at = random.below(bytes.size());
        switch (random.below(6)) {
        case 0: bytes[at] = static_cast<char>(random()); break;
        case 1: bytes[at] = static_cast<char>(bytes[at] ^ (1 << random.below(8))); break;
        case 2: bytes.resize(at); break;
        case 3: bytes.insert(at, 1, static_cast<char>(random())); break;
        case 4: bytes[at] = static_cast<char>(0xff); break;
        default: bytes += bytes.substr(at); break;
        }
    }
    return bytes;
}

struct Pair {
    d::FileDescriptor ours, theirs;
    Pair() {
        int ends[2];
        BOOST_TEST_REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
        ours = d::FileDescriptor(ends[0]);
        theirs = d::FileDescriptor(ends[1]);
    }
    void say(const std::string& bytes) const {
        if (!bytes.empty())
            static_cast<void>(::send(theirs.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) + 0);
    }
};

template <class T>
std::string bytes_of(const T& value) {
    return std::string(reinterpret_cast<const char*>(&value), sizeof value);
}

/// A wire to rank 1 with one open connection.
class OneLink {
public:
    static constexpr bool grows = true;
    explicit OneLink(d::FileDescriptor socket) : link_(std::make_unique<d::TcpLink>(1)) {
        link_->become(d::TcpLink::State::open, std::move(socket));
    }
    bool send(int, const un::Envelope&, const std::byte*, un::Token) { return true; }
    template <class Handler>
    void poll(Handler& handler) {
        if (link_->state() == d::TcpLink::State::open) link_->receive(handler);
    }
    void idle(std::uint32_t, un::nanoseconds) {}
    void forget() { link_->forget(); }
    void goodbye(un::nanoseconds) {}
    [[nodiscard]] bool lost(int) const { return link_->lost(); }
    [[nodiscard]] bool said_goodbye(int) const { return link_->said_goodbye(); }
    [[nodiscard]] bool quiet(int) { return true; }
    [[nodiscard]] bool sending(int) const { return false; }
    [[nodiscard]] std::string describe(int) const { return "one link"; }

private:
    std::unique_ptr<d::TcpLink> link_;
};

/// As a group's sink, it reads an envelope before it touches a byte.
struct Sink final : un::EndpointSink {
    Sink(const un::Signature& signature, std::size_t count) : expected(signature), bytes(count) {}
    const un::Signature& expected;
    std::size_t bytes;
    long good = 0, refused = 0;
    unsigned sum = 0;
    void sent(un::Token) override {}
    void received(un::Token, const un::Envelope& envelope, const std::byte* data) override {
        if (!(envelope.signature == expected) || envelope.bytes != bytes) return static_cast<void>(++refused);
        // Reads all of the memory.
        for (std::size_t i = 0; i < bytes; ++i) sum += static_cast<unsigned>(data[i]);
        ++good;
    }
    void too_long(un::Token, const un::Envelope&) override { ++refused; }
};

struct Counts {
    long greetings = 0, frames = 0, texts = 0, let_in = 0, good = 0, refused = 0, faults = 0;
    std::size_t most_taken = 0;
};

/// A greeting of a stranger without the key: it was changed, or is from another world, or for
/// another door.
void greet(Random& random, const un::JobToken& key, Counts& counts) {
    const auto text = [](const un::Blob& bytes) {
        return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    };
    const auto give = [](const std::string& bytes, un::Blob& in) {
        for (const char byte : bytes) in.push_back(static_cast<std::byte>(byte));
    };
    const un::JobToken other = un::JobToken::derived_from("another world's");
    d::Greeter rank({.world = 2, .rank = 1, .to = 0, .door = d::Door::data});
    d::Doorkeeper keeper(random.below(8) == 0 ? d::Door::mesh : d::Door::data);
    un::Blob in, out, proof;
    give(mutated(text(rank.hello()), random), in);
    bool is_in = keeper.look(key, in, out) == d::Greeted::proven;
    ++counts.greetings;
    if (!out.empty()) {
        const un::Blob challenge = out;
        const bool knows = rank.look(random.below(2) == 0 ? key : other, out, proof) == d::Greeted::proven;
        const std::string right = text(proof);
        std::string said = knows ? mutated(right, random) : mutated(text(challenge), random);
        if (knows && (said.starts_with(right) || !in.empty())) return; // restored by chance
        const std::size_t cut = random.below(said.size() + 1);
        give(said.substr(0, cut), in);
        is_in = keeper.look(key, in, out) == d::Greeted::proven || is_in;
        give(said.substr(cut), in);
        is_in = keeper.look(key, in, out) == d::Greeted::proven || is_in;
    }
    counts.let_in += is_in ? 1 : 0;
}

/// Frames of a faulty rank, as many as one connection accepts.
void speak(Random& random, long frames, Counts& counts) {
    const Pair pair;
    const auto world = std::make_shared<d::NetworkWorld>(2);
    const un::Signature signature{.collective = 1, .schedule = 2, .count = 3};
    const std::size_t bytes = random.below(3) == 0 ? 40'000 : random.below(300);
    std::vector<std::byte> target(bytes);
    {
        d::FramedEndpoint<OneLink> endpoint(world, 0, OneLink(d::FileDescriptor(::dup(pair.ours.get()))),
                                            {.name = "tcp"});
        Sink sink{signature, bytes};
        for (std::uint64_t position = 0; position < 4; ++position) {
            const un::Tag tag{7, position};
            endpoint.receive(1, {tag, signature, bytes}, position, position % 2 == 0 ? target.data() : nullptr);
        }
        for (long i = 0; i < frames && endpoint.first_fault() == nullptr && !endpoint.has_died(1); ++i) {
            d::TcpHeader header;
            header.envelope = {{7, random.below(8)}, signature, bytes};
            std::string data(d::TcpHeader::padded(bytes), 'x');
            if (random.below(3) == 0) {
                header.envelope.bytes = std::uint64_t{1} << random.below(64);
                if (random.below(2) == 0) header.envelope.bytes -= 1;
            }
            if (random.below(4) == 0) header.kind = static_cast<d::TcpFrame>(random.below(7));
            std::string head = bytes_of(header);
            if (random.below(2) == 0) { // anything but the length, which is chosen above
                std::string before = head.substr(0, offsetof(d::TcpHeader, envelope) + offsetof(un::Envelope, bytes));
                const std::size_t length = before.size();
                before = mutated(before, random);
                before.resize(length);
                head.replace(0, length, before);
            }
            pair.say(head + mutated(data, random));
            endpoint.progress(sink);
            endpoint.progress(sink);
            ++counts.frames;
            counts.most_taken = std::max(counts.most_taken, test::heap_bytes());
        }
        counts.faults += endpoint.first_fault() != nullptr ? 1 : 0;
        counts.good += sink.good;
        counts.refused += sink.refused;
    }
}

/// Texts and records from files and from the rendezvous.
void read(Random& random, const std::string& address, Counts& counts) {
    d::TcpAddress found;
    if (found.read(mutated(address, random))) static_cast<void>(found.describe());
    un::RendezvousPoint point;
    static_cast<void>(
        d::parse_rendezvous_line(mutated("unisono1 5000 0123456789abcdef0123456789abcdef 127.0.0.1\n", random), point));
    d::WireWriter out;
    d::write(out, un::Fault{.code = un::ErrorCode::timeout, .rank = 1, .operation = "o", .message = "m"});
    d::write(out, un::Wait{.operation = "o", .sequence = 1, .peers = {0, 1}});
    const un::Blob written = d::make_frame(d::FrameKind::complaint, out.take());
    const std::string changed =
        mutated(std::string(reinterpret_cast<const char*>(written.data()), written.size()), random);
    d::Frame frame;
    std::size_t used = 0;
    if (d::parse_frame(std::as_bytes(std::span(changed)), d::most_frame_bytes, frame, used) == d::Parsed::frame) {
        d::WireReader in(frame.payload);
        un::Fault fault;
        un::Wait wait;
        if (d::read(in, 2, fault)) static_cast<void>(d::read(in, 2, wait));
    }
    ++counts.texts;
}

} // namespace

BOOST_AUTO_TEST_SUITE(tcp_mutations)

BOOST_AUTO_TEST_CASE(greetings_and_frames) {
    const long inputs = number("UNISONO_FUZZ_INPUTS", 20'000);
    const long first = number("UNISONO_FUZZ_SEED", 1);
    const un::JobToken key = un::JobToken::random();
    d::TcpEntrance entrance{.interface = d::find_interface("127.0.0.1", false)};
    const std::string address = entrance.address().text();
    const std::size_t before = test::heap_bytes();
    Counts counts;
    for (long done = 0, seed = first; done < inputs; ++seed) {
        BOOST_TEST_CHECKPOINT("seed " << seed);
        const long let_in = counts.let_in;
        Random random(static_cast<std::uint64_t>(seed));
        const long all = counts.greetings + counts.frames + counts.texts;
        while (counts.greetings + counts.frames + counts.texts - all < 1000) {
            switch (random.below(3)) {
            case 0: greet(random, key, counts); break;
            case 1: speak(random, 20, counts); break;
            default: read(random, address, counts); break;
            }
            counts.most_taken = std::max(counts.most_taken, test::heap_bytes());
        }
        done += counts.greetings + counts.frames + counts.texts - all;
        BOOST_TEST(counts.let_in == let_in, "UNISONO_FUZZ_SEED=" << seed << " lets somebody in");
    }
    const std::size_t most = counts.most_taken - std::min(before, counts.most_taken);
    BOOST_TEST(most <= std::size_t{64} << 20, most << " bytes were taken");
    BOOST_TEST(most > 0); // memory was measured
    BOOST_TEST(counts.good > 0);
    BOOST_TEST(counts.refused > 0);
    BOOST_TEST_MESSAGE("seeds from " << first << ": " << counts.greetings << " greetings, " << counts.frames
                                     << " frames, " << counts.texts << " records; " << counts.let_in << " let in, "
                                     << counts.good << " messages right, " << counts.refused << " refused, "
                                     << counts.faults << " faults; at most " << most << " bytes taken");
}

BOOST_AUTO_TEST_SUITE_END()

} // namespace mutations_test

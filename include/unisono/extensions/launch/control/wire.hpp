#pragma once

/// \file
/// The messages between a control plane and its hub, as pure functions from bytes to values. No
/// function here blocks, throws on bytes of others, or trusts a length. Numbers are little-endian.
///
/// A connection opens with a handshake of fixed size (secrets/proof.hpp). Frames follow: length of
/// the payload (4 bytes), kind (1), zeros (3), payload.

#include "unisono/launch/launch.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

UNISONO_NAMESPACE_BEGIN
namespace detail {

inline constexpr std::size_t most_blob_bytes = std::size_t{1} << 20;
inline constexpr std::size_t most_frame_bytes = std::size_t{1} << 30;
inline constexpr std::size_t most_text_bytes = 16'384;
inline constexpr std::size_t frame_header_bytes = 8;

/// The bytes of a number between processes.
template <class Value>
    requires(!std::is_enum_v<Value> || sizeof(Value) == 1)
inline constexpr std::size_t wire_bytes = sizeof(Value) == 1 || sizeof(Value) == 8 ? sizeof(Value) : 4;

inline void append(Blob& to, std::span<const std::byte> bytes) { to.insert(to.end(), bytes.begin(), bytes.end()); }
inline void drop_front(Blob& from, std::size_t bytes) {
    from.erase(from.begin(), from.begin() + static_cast<std::ptrdiff_t>(bytes));
}

class WireWriter {
public:
    void u8(std::uint8_t value) { out_.push_back(static_cast<std::byte>(value)); }
    void u32(std::uint32_t value) { little(value, 4); }
    void u64(std::uint64_t value) { little(value, 8); }
    void bytes(std::span<const std::byte> data) { append(out_, data); }
    void text(std::string_view text) {
        text = text.substr(0, most_text_bytes);
        u32(static_cast<std::uint32_t>(text.size()));
        bytes(std::as_bytes(std::span(text)));
    }
    /// Enumerations and numbers of one byte have 1 byte, smaller numbers than 8 bytes have 4.
    template <class... Values>
    void put(const Values&... values) {
        (put_one(values), ...);
    }
    [[nodiscard]] Blob take() { return std::move(out_); }
    [[nodiscard]] std::size_t size() const { return out_.size(); }

private:
    template <class Value>
    void put_one(const Value& value) {
        if constexpr (std::is_convertible_v<const Value&, std::string_view>) text(value);
        else if constexpr (std::is_class_v<Value>) bytes(std::as_bytes(std::span(value)));
        else little(static_cast<std::uint64_t>(value), wire_bytes<Value>);
    }
    void little(std::uint64_t value, std::size_t count) {
        for (std::size_t i = 0; i < count; ++i) u8(static_cast<std::uint8_t>(value >> (8 * i)));
    }
    Blob out_;
};

/// Reading past the end returns zeros and makes `good()` false.
class WireReader {
public:
    explicit WireReader(std::span<const std::byte> in) : in_(in) {}

    std::uint8_t u8() { return static_cast<std::uint8_t>(little(1)); }
    std::uint32_t u32() { return static_cast<std::uint32_t>(little(4)); }
    std::uint64_t u64() { return little(8); }
    std::span<const std::byte> bytes(std::size_t count) {
        if (count > in_.size()) {
            good_ = false;
            in_ = {};
            return {};
        }
        const auto taken = in_.first(count);
        in_ = in_.subspan(count);
        return taken;
    }
    std::string text() {
        const std::size_t length = u32();
        if (length > most_text_bytes) good_ = false;
        const auto taken = bytes(good_ ? length : 0);
        return std::string(reinterpret_cast<const char*>(taken.data()), taken.size());
    }
    /// Reads values that `put` has written. The caller checks the ranges of numbers.
    template <class... Values>
    void take(Values&... values) {
        (take_one(values), ...);
    }
    [[nodiscard]] bool good() const { return good_; }
    [[nodiscard]] bool finished() const { return good_ && in_.empty(); }
    [[nodiscard]] std::size_t left() const { return in_.size(); }

private:
    template <class Value>
    void take_one(Value& value) {
        if constexpr (std::is_same_v<Value, std::string>) value = text();
        else if constexpr (std::is_class_v<Value>)
            for (auto& byte : value) byte = u8();
        else value = static_cast<Value>(little(wire_bytes<Value>));
    }
    std::uint64_t little(std::size_t count) {
        std::uint64_t value = 0;
        const auto taken = bytes(count);
        for (std::size_t i = 0; i < taken.size(); ++i)
            value |= std::uint64_t{static_cast<std::uint8_t>(taken[i])} << (8 * i);
        return value;
    }
    std::span<const std::byte> in_;
    bool good_ = true;
};

/// Random bytes that are used only once.
using Nonce = std::array<std::uint8_t, 16>;

/// The places where processes of a job connect. A proof for one of them is none for another.
enum class Door : std::uint8_t {
    rendezvous = 1, ///< of the ranks, at their hub
    desk,           ///< of a process that is to be added, at an elastic world's first rank
    mesh,           ///< between two members of an elastic world
    data,           ///< between two ranks, for messages
};

/// The greeting of a process. It contains no secret, and has no effect before it is proven.
struct Hello {
    static constexpr std::size_t bytes = 64;
    static constexpr std::string_view magic = "unisono5";

    Nonce nonce = {};
    std::uint32_t world = 0;
    std::uint32_t rank = 0;
    std::uint64_t claimant = 0; ///< drawn by the process: equal if the process connects again
    std::uint64_t host = 0;     ///< equal for processes that see each other's pids
    std::uint32_t pid = 0;
    std::uint32_t to = 0;         ///< the rank to which it connects
    std::uint16_t connection = 0; ///< its number among the connections between the two
    Door door = Door::rendezvous;
    friend bool operator==(const Hello&, const Hello&) = default;
};

inline Blob encode(const Hello& hello) {
    WireWriter out;
    out.bytes(std::as_bytes(std::span(Hello::magic)));
    out.put(hello.nonce, hello.world, hello.rank, hello.claimant, hello.host, hello.pid, hello.to, hello.connection);
    out.u32(static_cast<std::uint32_t>(hello.door));
    return out.take();
}

/// Returns nothing unless the bytes are a hello.
inline std::optional<Hello> parse_hello(std::span<const std::byte> input) {
    if (input.size() != Hello::bytes) return std::nullopt;
    WireReader in(input);
    const auto magic = in.bytes(Hello::magic.size());
    if (!std::equal(magic.begin(), magic.end(), std::as_bytes(std::span(Hello::magic)).begin())) return std::nullopt;
    Hello hello;
    std::uint32_t connection = 0, door = 0;
    in.take(hello.nonce, hello.world, hello.rank, hello.claimant, hello.host, hello.pid, hello.to, connection, door);
    hello.connection = static_cast<std::uint16_t>(connection);
    hello.door = static_cast<Door>(door);
    if (connection != hello.connection || door < 1 || door > static_cast<std::uint32_t>(Door::data))
        return std::nullopt;
    return hello;
}

enum class FrameKind : std::uint8_t {
    // to the hub
    contribution = 1, ///< round, blob
    complaint,        ///< fault, and the operation that the rank waits for
    answer,           ///< number of the inquiry, and the operation that the rank waits for
    goodbye,
    // from the hub
    accepted,
    refused,  ///< fault; the connection ends
    complete, ///< host and pid of each rank
    gathered, ///< round, blobs
    verdict,  ///< the first fault
    inquiry,  ///< number
    left,     ///< rank
    closing,  ///< the hub ends without fault
    // between two ranks
    taken, ///< the peer has begun a connection itself, which is used
};

struct Frame {
    FrameKind kind = FrameKind::goodbye;
    std::span<const std::byte> payload = {};
};

enum class Parsed : std::uint8_t { incomplete, frame, garbage, forged };

/// Parses the first frame of the input, if it is complete; `used` is its size. Returns garbage as
/// soon as a header is invalid.
inline Parsed parse_frame(std::span<const std::byte> input, std::size_t most_bytes, Frame& frame, std::size_t& used) {
    if (input.size() < frame_header_bytes) return Parsed::incomplete;
    WireReader in(input.first(frame_header_bytes));
    const std::size_t length = in.u32();
    const std::uint8_t kind = in.u8();
    const bool zeros = in.u8() == 0 && in.u8() == 0 && in.u8() == 0;
    if (length > most_bytes || !zeros || kind < 1 || kind > static_cast<std::uint8_t>(FrameKind::taken))
        return Parsed::garbage;
    if (input.size() - frame_header_bytes < length) return Parsed::incomplete;
    frame = {static_cast<FrameKind>(kind), input.subspan(frame_header_bytes, length)};
    used = frame_header_bytes + length;
    return Parsed::frame;
}

inline Blob make_frame(FrameKind kind, std::span<const std::byte> payload = {}) {
    WireWriter out;
    out.put(static_cast<std::uint32_t>(payload.size()), kind, std::array<std::uint8_t, 3>{});
    out.bytes(payload);
    return out.take();
}

inline void write(WireWriter& out, const Fault& fault) {
    out.put(fault.code, fault.rank, fault.peer, fault.sequence, fault.operation, fault.message);
}

/// Returns false for a fault that is impossible in a world of `world` ranks.
inline bool read(WireReader& in, int world, Fault& fault) {
    in.take(fault.code, fault.rank, fault.peer, fault.sequence, fault.operation, fault.message);
    return in.good() && fault.code > ErrorCode::none && fault.code <= ErrorCode::not_finite && fault.rank >= -1 &&
           fault.rank < world && fault.peer >= -1 && fault.peer < world;
}

inline void write(WireWriter& out, const Wait& wait) {
    out.put(wait.context, wait.sequence, wait.operation, static_cast<std::uint32_t>(wait.peers.size()));
    for (const int peer : wait.peers) out.put(peer);
}

inline bool read(WireReader& in, int world, Wait& wait) {
    std::uint32_t count = 0;
    in.take(wait.context, wait.sequence, wait.operation, count);
    if (!in.good() || count > static_cast<std::uint32_t>(world) || in.left() < std::size_t{4} * count) return false;
    wait.peers.resize(count);
    for (int& peer : wait.peers) {
        const std::uint32_t value = in.u32();
        if (value >= static_cast<std::uint32_t>(world)) return false;
        peer = static_cast<int>(value);
    }
    return true;
}

inline Blob fault_frame(FrameKind kind, const Fault& fault) {
    WireWriter out;
    write(out, fault);
    return make_frame(kind, out.take());
}
inline Blob complaint_frame(const Fault& fault, const Wait& wait) {
    WireWriter out;
    write(out, fault);
    write(out, wait);
    return make_frame(FrameKind::complaint, out.take());
}

/// With this a hub refuses a rank that has said goodbye: it may look for the next hub, which is to
/// listen at the same address.
inline std::string has_left_already(std::uint32_t rank) {
    return concat({"rank ", rank, " has already come and left"});
}

inline Blob number_frame(FrameKind kind, std::uint32_t number) {
    WireWriter out;
    out.u32(number);
    return make_frame(kind, out.take());
}

} // namespace detail
UNISONO_NAMESPACE_END

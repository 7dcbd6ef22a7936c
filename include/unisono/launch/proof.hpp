#pragma once

/// \file
/// How a rank and the hub prove to each other that they have the job's secret, which is never sent,
/// and how the frames that follow are protected.
///
///     rank -> hub   Hello      its rank, and 16 random bytes
///     hub  -> rank  Challenge  16 random bytes, and
///                              a code over "unisono2 hub", the hello and these bytes
///     rank -> hub   32 bytes   a code over "unisono2 rank", the hello and the hub's bytes
///
/// A code is HMAC-SHA-256 with the secret as key. The random bytes of both sides make each
/// handshake different, so a recorded one proves nothing. The words make one side's proof useless
/// as the other's. The hello contains rank, world, process and host, so a proof is valid for one
/// process only. A secret that a user gives is first bound to the job (JobToken::of_job), so it is
/// not valid for another job.
///
/// Each frame is followed by 16 bytes: the start of a code over the frame's number in its direction
/// and the frame's SHA-256. Each connection and direction has its own key. A frame that was
/// changed, left out, repeated or sent back ends the connection.

#include "unisono/launch/sha256.hpp"
#include "unisono/launch/token.hpp"
#include "unisono/launch/wire.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

UNISONO_NAMESPACE_BEGIN
namespace detail {

inline Digest authenticate(const JobToken& key, std::string_view purpose, std::span<const std::byte> first,
                           std::span<const std::byte> second = {}) {
    HmacSha256 code(key.value());
    code.add(purpose).add(first).add(second);
    return code.finish();
}

/// The hub's answer to a hello.
struct Challenge {
    static constexpr std::size_t bytes = 56;
    static constexpr std::string_view magic = "unisono2";

    Nonce nonce = {};
    Digest proof = {};
};

inline Blob encode(const Challenge& challenge) {
    WireWriter out;
    out.bytes(std::as_bytes(std::span(Challenge::magic)));
    out.bytes(std::as_bytes(std::span(challenge.nonce)));
    out.bytes(std::as_bytes(std::span(challenge.proof)));
    return out.take();
}

/// Returns nothing unless the bytes are a challenge.
inline std::optional<Challenge> parse_challenge(std::span<const std::byte> input) {
    const auto magic = std::as_bytes(std::span(Challenge::magic));
    if (input.size() != Challenge::bytes || !std::equal(magic.begin(), magic.end(), input.begin())) return std::nullopt;
    WireReader in(input.subspan(magic.size()));
    Challenge challenge;
    for (std::uint8_t& byte : challenge.nonce) byte = in.u8();
    for (std::uint8_t& byte : challenge.proof) byte = in.u8();
    return challenge;
}

inline Digest proof_of_hub(const JobToken& secret, std::span<const std::byte> hello, const Nonce& nonce) {
    return authenticate(secret, "unisono2 hub", hello, std::as_bytes(std::span(nonce)));
}
inline Digest proof_of_rank(const JobToken& secret, std::span<const std::byte> hello, const Nonce& nonce) {
    return authenticate(secret, "unisono2 rank", hello, std::as_bytes(std::span(nonce)));
}

inline Digest digest_of(std::span<const std::byte> text) {
    Sha256 hash;
    hash.add(text);
    return hash.finish();
}

/// One direction of a connection: appends codes to outgoing frames, or checks those of incoming
/// frames. Both ends count frames.
class Seal {
public:
    static constexpr std::size_t bytes = 16;

    Seal() : Seal(Digest{}) {}
    explicit Seal(const Digest& key) : key_(key) {}

    /// The code of the next frame. `digest` is the frame's, so that a frame for many ranks is
    /// hashed once.
    [[nodiscard]] std::array<std::uint8_t, bytes> next(const Digest& digest) {
        WireWriter number;
        number.u64(count_++);
        HmacSha256 code = key_;
        const Digest whole = code.add(number.take()).add(std::as_bytes(std::span(digest))).finish();
        std::array<std::uint8_t, bytes> start;
        std::copy_n(whole.begin(), bytes, start.begin());
        return start;
    }
    void close(Blob& frame, const Digest& digest) {
        const auto code = next(digest);
        const auto added = std::as_bytes(std::span(code));
        frame.insert(frame.end(), added.begin(), added.end());
    }
    void close(Blob& frame) { close(frame, digest_of(frame)); }

    /// Calls `parse_frame` and checks the frame's code. `used` is the frame's size with the code.
    /// Returns `forged` if the code is wrong.
    Parsed open(std::span<const std::byte> input, std::size_t most_bytes, Frame& frame, std::size_t& used) {
        const Parsed parsed = parse_frame(input, most_bytes, frame, used);
        if (parsed != Parsed::frame) return parsed;
        if (input.size() - used < bytes) return Parsed::incomplete;
        const auto code = next(digest_of(input.first(used)));
        const std::span<const std::uint8_t> said(reinterpret_cast<const std::uint8_t*>(input.data()) + used, bytes);
        used += bytes;
        return equal_in_constant_time(code, said) ? Parsed::frame : Parsed::forged;
    }

private:
    HmacSha256 key_;
    std::uint64_t count_ = 0;
};

/// The state of both ends of a connection after their proofs.
struct ControlSession {
    enum class Side : std::uint8_t { rank, hub };

    JobToken secret = {};
    Seal out = {};
    Seal in = {};

    static ControlSession begin(Side side, const JobToken& secret, std::span<const std::byte> hello,
                                const Nonce& nonce) {
        const auto random = std::as_bytes(std::span(nonce));
        Seal to_hub(authenticate(secret, "unisono2 frames to hub", hello, random));
        Seal to_rank(authenticate(secret, "unisono2 frames to rank", hello, random));
        return side == Side::rank ? ControlSession{secret, to_hub, to_rank} : ControlSession{secret, to_rank, to_hub};
    }
};

/// The hub's side of a handshake.
class Doorkeeper {
public:
    enum class Answer : std::uint8_t { waits, stranger, proven };

    /// Takes the bytes that it understands from the start of `input`, and appends bytes to send to
    /// `out`. Bytes that cannot become a hello identify a stranger at once, without a wait.
    Answer look(const JobToken& secret, Blob& input, Blob& out) {
        if (!hello_) {
            const auto magic = std::as_bytes(std::span(Hello::magic));
            const std::size_t known = std::min(input.size(), magic.size());
            if (!std::equal(magic.begin(), magic.begin() + static_cast<std::ptrdiff_t>(known), input.begin()))
                return Answer::stranger;
            if (input.size() < Hello::bytes) return Answer::waits;
            const std::span<const std::byte> said = std::span(input).first(Hello::bytes);
            hello_ = parse_hello(said);
            if (!hello_) return Answer::stranger;
            const Challenge challenge{.nonce = nonce_ = JobToken::random().value(),
                                      .proof = proof_of_hub(secret, said, nonce_)};
            awaited_ = proof_of_rank(secret, said, nonce_);
            const Blob bytes = encode(challenge);
            out.insert(out.end(), bytes.begin(), bytes.end());
            input.erase(input.begin(), input.begin() + static_cast<std::ptrdiff_t>(Hello::bytes));
        }
        if (input.size() < awaited_.size()) return Answer::waits;
        const std::span<const std::uint8_t> said(reinterpret_cast<const std::uint8_t*>(input.data()), awaited_.size());
        if (!equal_in_constant_time(awaited_, said)) return Answer::stranger;
        input.erase(input.begin(), input.begin() + static_cast<std::ptrdiff_t>(awaited_.size()));
        return Answer::proven;
    }

    /// Valid once the connection is proven.
    [[nodiscard]] const Hello& hello() const { return *hello_; }
    [[nodiscard]] ControlSession session(const JobToken& secret) const {
        return ControlSession::begin(ControlSession::Side::hub, secret, encode(*hello_), nonce_);
    }

private:
    std::optional<Hello> hello_;
    Nonce nonce_ = {};
    Digest awaited_ = {};
};

} // namespace detail
UNISONO_NAMESPACE_END

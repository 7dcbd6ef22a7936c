#pragma once

/// \file
/// The one handshake of all connections of a job: how the process that connects, the caller, and
/// the one that listens, the keeper of a door, prove to each other that they have the job's secret,
/// which is never sent, and how the frames that follow are protected.
///
///     caller -> keeper   Hello      the door, its rank and the keeper's, and 16 random bytes
///     keeper -> caller   Challenge  16 random bytes, and
///                                   a code over "unisono5 keeper", the hello and these bytes
///     caller -> keeper   32 bytes   a code over "unisono5 caller", the hello and these bytes
///
/// A code is HMAC-SHA-256 with the secret as key. The random bytes of both sides make each
/// handshake different, so a recorded one proves nothing. The words make one side's proof useless
/// as the other's. The hello contains door, ranks, world, process and host, so a proof is valid at
/// one door, for one process only. A secret that a user gives is first bound to the job
/// (JobToken::of_job), so it is not valid for another job.
///
/// Each frame is followed by 16 bytes: the start of a code over the frame's number in its direction
/// and the frame's SHA-256. Each connection and direction has its own key. A frame that was
/// changed, left out, repeated or sent back ends the connection.

#include "unisono/extensions/launch/control/wire.hpp"
#include "unisono/extensions/launch/secrets/sha256.hpp"
#include "unisono/extensions/launch/secrets/token.hpp"

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

/// The keeper's answer to a hello.
struct Challenge {
    static constexpr std::size_t bytes = 56;
    static constexpr std::string_view magic = Hello::magic;

    Nonce nonce = {};
    Digest proof = {};
};

inline Blob encode(const Challenge& challenge) {
    WireWriter out;
    out.bytes(std::as_bytes(std::span(Challenge::magic)));
    out.put(challenge.nonce, challenge.proof);
    return out.take();
}

/// Returns nothing unless the bytes are a challenge.
inline std::optional<Challenge> parse_challenge(std::span<const std::byte> input) {
    const auto magic = std::as_bytes(std::span(Challenge::magic));
    if (input.size() != Challenge::bytes || !std::equal(magic.begin(), magic.end(), input.begin())) return std::nullopt;
    WireReader in(input.subspan(magic.size()));
    Challenge challenge;
    in.take(challenge.nonce, challenge.proof);
    return challenge;
}

inline Digest proof_of_keeper(const JobToken& secret, std::span<const std::byte> hello, const Nonce& nonce) {
    return authenticate(secret, "unisono5 keeper", hello, std::as_bytes(std::span(nonce)));
}
inline Digest proof_of_caller(const JobToken& secret, std::span<const std::byte> hello, const Nonce& nonce) {
    return authenticate(secret, "unisono5 caller", hello, std::as_bytes(std::span(nonce)));
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
        append(frame, std::as_bytes(std::span(code)));
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
    enum class Side : std::uint8_t { caller, keeper };

    JobToken secret = {};
    Seal out = {};
    Seal in = {};

    static ControlSession begin(Side side, const JobToken& secret, std::span<const std::byte> hello,
                                const Nonce& nonce) {
        const auto random = std::as_bytes(std::span(nonce));
        Seal to_keeper(authenticate(secret, "unisono5 frames to keeper", hello, random));
        Seal to_caller(authenticate(secret, "unisono5 frames to caller", hello, random));
        return side == Side::caller ? ControlSession{secret, to_keeper, to_caller}
                                    : ControlSession{secret, to_caller, to_keeper};
    }
};

/// True if the bytes can become a hello or a challenge.
inline bool begins_with_magic(const Blob& input) {
    const auto magic = std::as_bytes(std::span(Hello::magic));
    return std::equal(magic.begin(), magic.begin() + static_cast<std::ptrdiff_t>(std::min(input.size(), magic.size())),
                      input.begin());
}

/// True if the bytes are those that the keeper of a door sends first.
inline bool is_challenge(const Blob& input) {
    return input.size() >= Challenge::bytes && parse_challenge(std::span(input).first(Challenge::bytes)).has_value();
}

enum class Greeted : std::uint8_t { waits, stranger, proven };

/// The caller's side of a handshake.
class Greeter {
public:
    explicit Greeter(Hello hello) {
        hello.nonce = JobToken::random().value();
        hello_ = encode(hello);
    }
    /// The bytes that the caller sends first.
    [[nodiscard]] const Blob& hello() const { return hello_; }
    /// The bytes that the next call of `look` takes.
    [[nodiscard]] static constexpr std::size_t awaits() { return Challenge::bytes; }

    /// Takes the challenge from the start of `input`, and appends the proof to `out`. Bytes that
    /// cannot become a challenge identify a stranger at once, without a wait.
    Greeted look(const JobToken& secret, Blob& input, Blob& out) {
        if (!begins_with_magic(input)) return Greeted::stranger;
        if (input.size() < Challenge::bytes) return Greeted::waits;
        const auto challenge = parse_challenge(std::span(input).first(Challenge::bytes));
        if (!challenge || !equal_in_constant_time(challenge->proof, proof_of_keeper(secret, hello_, challenge->nonce)))
            return Greeted::stranger;
        nonce_ = challenge->nonce;
        const Digest proof = proof_of_caller(secret, hello_, nonce_);
        append(out, std::as_bytes(std::span(proof)));
        drop_front(input, Challenge::bytes);
        return Greeted::proven;
    }
    /// Valid once the keeper has proven itself.
    [[nodiscard]] ControlSession session(const JobToken& secret) const {
        return ControlSession::begin(ControlSession::Side::caller, secret, hello_, nonce_);
    }

private:
    Blob hello_;
    Nonce nonce_ = {};
};

/// The keeper's side of a handshake.
class Doorkeeper {
public:
    explicit Doorkeeper(Door door) : door_(door) {}

    /// The bytes that the next step takes.
    [[nodiscard]] std::size_t awaits() const { return hello_ ? awaited_.size() : Hello::bytes; }

    /// Takes the bytes that it understands from the start of `input`, and appends bytes to send to
    /// `out`. Bytes that cannot become a hello identify a stranger at once, without a wait.
    Greeted look(const JobToken& secret, Blob& input, Blob& out) {
        if (!hello_) {
            if (!begins_with_magic(input)) return Greeted::stranger;
            if (input.size() < Hello::bytes) return Greeted::waits;
            const std::span<const std::byte> said = std::span(input).first(Hello::bytes);
            hello_ = parse_hello(said);
            if (!hello_ || hello_->door != door_) return Greeted::stranger;
            const Challenge challenge{.nonce = nonce_ = JobToken::random().value(),
                                      .proof = proof_of_keeper(secret, said, nonce_)};
            awaited_ = proof_of_caller(secret, said, nonce_);
            append(out, encode(challenge));
            drop_front(input, Hello::bytes);
        }
        if (input.size() < awaited_.size()) return Greeted::waits;
        const std::span<const std::uint8_t> said(reinterpret_cast<const std::uint8_t*>(input.data()), awaited_.size());
        if (!equal_in_constant_time(awaited_, said)) return Greeted::stranger;
        drop_front(input, awaited_.size());
        return Greeted::proven;
    }

    /// Valid once the connection is proven.
    [[nodiscard]] const Hello& hello() const { return *hello_; }
    [[nodiscard]] ControlSession session(const JobToken& secret) const {
        return ControlSession::begin(ControlSession::Side::keeper, secret, encode(*hello_), nonce_);
    }

private:
    Door door_;
    std::optional<Hello> hello_;
    Nonce nonce_ = {};
    Digest awaited_ = {};
};

} // namespace detail
UNISONO_NAMESPACE_END

#pragma once

/// \file
/// A job's secret: 128 random bits that its processes know and strangers do not.

#include "unisono/core/config.hpp"
#include "unisono/core/error.hpp"
#include "unisono/core/hash.hpp"
#include "unisono/extensions/launch/secrets/sha256.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <sys/random.h>

UNISONO_NAMESPACE_BEGIN

/// It is never sent over the network: processes prove that they have it (proof.hpp).
class JobToken {
public:
    static constexpr std::size_t bytes = 16;

    JobToken() = default; ///< all zeros
    explicit JobToken(const std::array<std::uint8_t, bytes>& value) : value_(value) {}

    /// Draws a token from the system's random source. Errors: refused if it has none.
    static JobToken random() {
        JobToken made;
        std::size_t filled = 0;
        while (filled < bytes) {
            const ssize_t got = getrandom(made.value_.data() + filled, bytes - filled, 0);
            if (got <= 0 && errno != EINTR) throw error(ErrorCode::refused, "the system gives no random bytes");
            if (got > 0) filled += static_cast<std::size_t>(got);
        }
        return made;
    }

    /// Parses 32 hexadecimal digits, as in UNISONO_TOKEN. Errors: bad_input with `where`. The
    /// message does not quote the text, which may be a secret.
    static JobToken parse(std::string_view text, std::string_view where = "UNISONO_TOKEN") {
        JobToken made;
        bool good = text.size() == 2 * bytes;
        for (std::size_t i = 0; good && i < bytes; ++i) {
            const char* const two = text.data() + 2 * i;
            good = std::from_chars(two, two + 2, made.value_[i], 16).ptr == two + 2;
        }
        if (!good) refuse_input({where, " has ", text.size(), " characters, expected 32 hexadecimal digits"});
        return made;
    }

    /// The same token for all that know the text, including strangers. It separates jobs that use
    /// one address by mistake, and is not a secret.
    static JobToken derived_from(std::string_view text) {
        JobToken made;
        std::uint64_t halves[2] = {detail::fnv_basis, 0x9e3779b97f4a7c15u};
        for (std::uint64_t& half : halves) half = detail::scrambled(detail::fnv1a(half, text));
        for (std::size_t i = 0; i < bytes; ++i)
            made.value_[i] = static_cast<std::uint8_t>(halves[i / 8] >> (i % 8 * 8));
        return made;
    }

    /// A different secret for each job that was given this one: a proof in one job is not valid in
    /// another.
    [[nodiscard]] JobToken of_job(std::string_view job) const {
        const detail::Digest digest = detail::HmacSha256(value_).add("unisono2 job ").add(job).finish();
        JobToken made;
        std::copy_n(digest.begin(), bytes, made.value_.begin());
        return made;
    }

    /// True for all zeros, which means that there is no secret.
    [[nodiscard]] bool is_none() const { return *this == JobToken(); }

    [[nodiscard]] std::string text() const {
        constexpr std::string_view digits = "0123456789abcdef";
        std::string shown;
        for (const std::uint8_t byte : value_) {
            shown += digits[byte >> 4];
            shown += digits[byte & 15];
        }
        return shown;
    }

    [[nodiscard]] const std::array<std::uint8_t, bytes>& value() const { return value_; }

    friend bool operator==(const JobToken& a, const JobToken& b) noexcept { return a.is(b); }

private:
    /// In constant time.
    [[nodiscard]] bool is(const JobToken& other) const noexcept {
        return detail::equal_in_constant_time(value_, other.value_);
    }

    std::array<std::uint8_t, bytes> value_ = {};
};

/// A control plane of a job with a secret, from which it derives keys.
template <class Control>
concept derives_keys = requires(const Control& control, std::string_view purpose, std::span<const std::byte> random) {
    { control.derive_key(purpose, random) } -> std::same_as<JobToken>;
};

UNISONO_NAMESPACE_END

#pragma once

/// \file
/// Operating errors. Inside the library they are values of `status` and `Fault`; only the public
/// functions throw `error`.

#include "unisono/core/config.hpp"
#include "unisono/core/text.hpp"

#include <cstdint>
#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

UNISONO_NAMESPACE_BEGIN

/// The kind of a failure, in terms on which a program can act.
enum class ErrorCode : std::uint8_t {
    none,
    timeout,    ///< a deadline passed; `peer` is the rank that was waited for
    peer_lost,  ///< a rank died or left
    mismatch,   ///< ranks disagree in operation, element type, count, schedule or parameters
    refused,    ///< the request cannot be served here (a capability or a resource is missing)
    aborted,    ///< another rank failed, or this one gave up; the message names the rank and the reason
    bad_input,  ///< an argument is wrong: the message has the found and the expected value
    not_finite, ///< a gradient or loss is NaN or infinite
};

constexpr std::string_view name_of(ErrorCode code) {
    switch (code) {
    case ErrorCode::none: return "none";
    case ErrorCode::timeout: return "timeout";
    case ErrorCode::peer_lost: return "peer_lost";
    case ErrorCode::mismatch: return "mismatch";
    case ErrorCode::refused: return "refused";
    case ErrorCode::aborted: return "aborted";
    case ErrorCode::bad_input: return "bad_input";
    case ErrorCode::not_finite: return "not_finite";
    }
    return "unknown";
}

/// One failure, as all ranks see it: the first one of a world wins and is the same on every rank.
struct Fault {
    ErrorCode code = ErrorCode::none;
    int rank = -1;              ///< the rank to blame, or the one that noticed; -1: none in particular
    int peer = -1;              ///< the other rank concerned; -1: none
    std::string operation = {}; ///< "all_reduce", "fit", ...; empty: none
    std::uint64_t sequence = 0; ///< the operation's sequence number in its group
    std::string message = {};   ///< the found and the expected value, and the location
};

/// The exception that the public functions throw.
class error : public std::runtime_error {
public:
    /// `agreed`: all ranks throw this error, after they have agreed on it.
    explicit error(Fault what, bool agreed = false);
    error(ErrorCode code, const std::string& message);

    [[nodiscard]] ErrorCode code() const noexcept { return fault_.code; }
    [[nodiscard]] int rank() const noexcept { return fault_.rank; }
    [[nodiscard]] int peer() const noexcept { return fault_.peer; }
    [[nodiscard]] const std::string& operation() const noexcept { return fault_.operation; }
    [[nodiscard]] std::uint64_t sequence() const noexcept { return fault_.sequence; }
    [[nodiscard]] const Fault& why() const noexcept { return fault_; }
    /// True if all ranks throw this error. Then the group remains usable.
    [[nodiscard]] bool agreed() const noexcept { return agreed_; }

private:
    [[gnu::cold]] static std::string compose(const Fault& what);
    Fault fault_;
    bool agreed_ = false;
};

namespace detail {
/// An error of this rank's device. This rank alone throws it, and no other rank is the cause.
class device_error : public error {
public:
    using error::error;
};

/// The exception that is being handled, as a fault: an error's own, of `other.rank` if it names no
/// rank. For any other exception `other`, with the exception's text behind its message.
[[gnu::cold]] Fault fault_of_exception(Fault other);

/// For a handler `catch (...)`: true if its thread ends, by pthread_exit or by cancellation. The
/// system then unwinds the stack as if something had been thrown, and ends the program if a handler
/// does not rethrow it.
[[gnu::cold]] bool ends_its_thread() noexcept;
/// For a handler that keeps or drops exceptions: rethrows what is none.
inline void pass_on_end_of_thread() {
    if (ends_its_thread()) throw;
}
/// The words of a message about such an end.
inline constexpr std::string_view end_of_thread = "nothing, but its thread ended (by pthread_exit or pthread_cancel)";
} // namespace detail

/// Throws `bad_input`: the only way in which arguments are refused.
[[noreturn, gnu::cold]] void refuse_input(const detail::TextPart& message);
/// As above, with a message of parts, as for `concat`.
[[noreturn, gnu::cold]] void refuse_input(std::initializer_list<detail::TextPart> message);

UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
UNISONO_NAMESPACE_BEGIN

[[gnu::cold]] UNISONO_DEFINITION error::error(Fault what, bool agreed)
    : std::runtime_error(compose(what)), fault_(std::move(what)), agreed_(agreed) {}
[[gnu::cold]] UNISONO_DEFINITION error::error(ErrorCode code, const std::string& message)
    : error(Fault{.code = code, .message = message}) {}

[[gnu::cold]] UNISONO_DEFINITION std::string error::compose(const Fault& what) {
    std::string text = concat({"unisono: ", name_of(what.code)});
    if (!what.operation.empty()) {
        text += concat({" in ", what.operation});
        if (what.sequence != 0) text += concat({" #", what.sequence});
    }
    if (!what.message.empty()) text += concat({": ", what.message});
    return text;
}

// Such an unwinding is no C++ exception, so there is none in flight.
UNISONO_DEFINITION bool detail::ends_its_thread() noexcept { return std::current_exception() == nullptr; }

[[gnu::noinline, gnu::cold]] UNISONO_DEFINITION Fault detail::fault_of_exception(Fault other) {
    if (ends_its_thread()) {
        other.message += end_of_thread;
        return other;
    }
    try {
        throw;
    } catch (const error& failed) {
        const int rank = other.rank;
        other = failed.why();
        if (other.rank < 0) other.rank = rank;
    } catch (const std::exception& failed) {
        const char* const text = failed.what();
        other.message += text != nullptr ? text : "an exception whose what() is null";
    } catch (...) {
        other.message += "something that is not a std::exception";
    }
    return other;
}

[[gnu::noinline, gnu::cold]] UNISONO_DEFINITION void refuse_input(const detail::TextPart& message) {
    throw error(ErrorCode::bad_input, concat({message}));
}

[[gnu::noinline, gnu::cold]] UNISONO_DEFINITION void refuse_input(std::initializer_list<detail::TextPart> message) {
    throw error(ErrorCode::bad_input, concat(message));
}

UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES

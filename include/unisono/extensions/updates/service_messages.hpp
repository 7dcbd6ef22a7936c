#pragma once

/// \file
/// The messages between workers and servers.

#include "unisono/arithmetic/scan.hpp"
#include "unisono/update/update.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

UNISONO_NAMESPACE_BEGIN
namespace detail {

enum class PushKind : std::uint8_t {
    gradient,    ///< a gradient follows
    empty,       ///< no data this time
    left_out,    ///< a guard left the gradient out
    synchronises ///< the worker has reached a synchronisation; not answered
};

/// The header of a push. `clock`: the worker's pushes before this one.
struct WorkerPush {
    PushKind kind = PushKind::empty;
    std::uint64_t clock = 0;
    double rate = 0;
    double divisor = 0; ///< the divisor of the gradient: the sum of its weights
    double largest = 0; ///< a bound on its magnitudes; 0: so small that no sum overflows
};

/// The header of an answer.
struct ServerAnswer {
    Verdict verdict = Verdict::empty; ///< commit: the push was applied
    std::uint64_t number = 0;         ///< updates of this server so far, including that of the push
    std::uint64_t staleness = 0;      ///< staleness of the push's gradient
    std::uint64_t ahead = 0;          ///< clocks by which the worker is now ahead of the slowest
    bool late = false;                ///< the push was dropped
    /// The push was left out because the sum of this parameter's gradients is not finite.
    std::size_t not_finite = npos;
};

/// The headers as they are sent. Counts are below 2^53.
using PushHead = std::array<double, 5>;
using AnswerHead = std::array<double, 6>;

inline constexpr int push_tag = 0, gradient_tag = 1, answer_tag = 2, parameters_tag = 3;

inline PushHead pack(const WorkerPush& push) {
    return {static_cast<double>(push.kind), static_cast<double>(push.clock), push.rate, push.divisor, push.largest};
}
inline WorkerPush unpack_push(const PushHead& head) {
    return {static_cast<PushKind>(head[0]), static_cast<std::uint64_t>(head[1]), head[2], head[3], head[4]};
}
inline AnswerHead pack(const ServerAnswer& answer) {
    return {static_cast<double>(answer.verdict),
            static_cast<double>(answer.number),
            static_cast<double>(answer.staleness),
            static_cast<double>(answer.ahead),
            answer.late ? 1.0 : 0.0,
            answer.not_finite == npos ? -1.0 : static_cast<double>(answer.not_finite)};
}
inline ServerAnswer unpack(const AnswerHead& head) {
    return {static_cast<Verdict>(head[0]),
            static_cast<std::uint64_t>(head[1]),
            static_cast<std::uint64_t>(head[2]),
            static_cast<std::uint64_t>(head[3]),
            head[4] != 0,
            head[5] < 0 ? npos : static_cast<std::size_t>(head[5])};
}

} // namespace detail
UNISONO_NAMESPACE_END

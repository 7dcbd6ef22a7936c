#pragma once

/// \file
/// The reason why an update did not happen, as text: for an error of all ranks, or of a rank that
/// trains on its own.

#include "unisono/core/error.hpp"
#include "unisono/core/text.hpp"
#include "unisono/trainer/failure.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The first offender on the lowest rank that has one, or the first offender among the sums over
/// all ranks. The same on all ranks.
struct Offence {
    int rank = -1;
    std::size_t parameter = 0;
    bool loss = false;      ///< the loss, not a parameter
    bool elsewhere = false; ///< in another part of the model, on ranks of another group
    bool sum = false;       ///< each rank's gradient is finite, but their sum is not: no rank is to blame

    [[nodiscard]] bool any() const { return rank >= 0 || sum; }

    /// If a rank has several offences, the first parameter counts; the loss counts last.
    void note(const Offence& found) {
        if (rank < 0 || (!found.loss && (loss || found.parameter < parameter))) *this = found;
    }
};

Fault refused_update(ErrorCode code, int rank, std::string_view operation, const std::string& why);

/// `rank`: the offending rank, by the world's number. `label`: the parameter's label, if the
/// parameter belongs to this group.
Fault not_finite(const Offence& offence, int rank, const std::string& label, std::uint64_t update,
                 std::string_view operation);

Fault no_norm(double norm, std::string_view clipping, std::uint64_t update, std::string_view operation);

Fault misfit(const std::string& label, std::uint64_t update, std::string_view operation);

/// Gradients cannot be divided by `divisor`, the sum of the weights of all micro-batches.
[[noreturn]] void refuse_divisor(std::string_view weighing, double micro_batches, double divisor, bool by_tokens);

/// `agreed`: all ranks throw the same error. A rank that updates on its own must tell the others.
[[noreturn]] void refuse_update(Fault why, bool agreed);

} // namespace detail
UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
UNISONO_NAMESPACE_BEGIN
namespace detail {

[[gnu::cold]] UNISONO_DEFINITION Fault refused_update(ErrorCode code, int rank, std::string_view operation,
                                                      const std::string& why) {
    return {.code = code,
            .rank = rank,
            .peer = -1,
            .operation = std::string(operation),
            .sequence = 0,
            .message = concat({why, "; the parameters are as they were before it, on all ranks"})};
}

[[gnu::cold]] UNISONO_DEFINITION Fault not_finite(const Offence& offence, int rank, const std::string& label,
                                                  std::uint64_t update, std::string_view operation) {
    if (offence.elsewhere)
        return refused_update(ErrorCode::not_finite, -1, operation,
                              concat({"a gradient of another part of the model, on ranks of another group, is NaN or "
                                      "infinite, in update ",
                                      update}));
    if (offence.sum)
        return refused_update(ErrorCode::not_finite, -1, operation,
                              concat({"the sum of the gradients of ", label,
                                      " over all micro-batches is NaN or infinite, in update ", update}));
    return refused_update(ErrorCode::not_finite, rank, operation,
                          concat({(offence.loss ? std::string("the loss") : concat({"the gradient of ", label})),
                                  " is NaN or infinite on rank ", rank, ", in update ", update}));
}

[[gnu::cold]] UNISONO_DEFINITION Fault no_norm(double norm, std::string_view clipping, std::uint64_t update,
                                               std::string_view operation) {
    return refused_update(ErrorCode::not_finite, -1, operation,
                          concat({"the norm of the gradient is ", norm, ", in update ", update, ", so that ", clipping,
                                  " cannot scale it"}));
}

[[gnu::cold]] UNISONO_DEFINITION Fault misfit(const std::string& label, std::uint64_t update,
                                              std::string_view operation) {
    Fault fault = refused_update(
        ErrorCode::refused, -1, operation,
        concat({"the gradient of ", label, " does not fit the grid on which it is summed, in update ", update}));
    fault.message += ", and the grid is wider now";
    return fault;
}

[[noreturn]] UNISONO_DEFINITION void refuse_divisor(std::string_view weighing, double micro_batches, double divisor,
                                                    bool by_tokens) {
    refuse_input({"weighing ", weighing, ": the weights of ", static_cast<std::uint64_t>(micro_batches),
                  " micro-batches add up to ", number_text(divisor, std::chars_format::general, 6),
                  "; expected more than 0, so that gradients can be divided by it",
                  (by_tokens ? " (does the model call pass.count_tokens?)" : "")});
}

[[noreturn]] UNISONO_DEFINITION void refuse_update(Fault why, bool agreed) {
    if (agreed) throw agreed_error(std::move(why));
    throw error(std::move(why));
}

} // namespace detail
UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES

#pragma once

/// \file
/// If one rank fails in a step, all ranks learn of it, and no rank continues.

#include "unisono/core/error.hpp"
#include "unisono/core/list.hpp"
#include "unisono/core/text.hpp"
#include "unisono/trainer/agreement.hpp"
#include "unisono/trainer/failure.hpp"
#include "unisono/trainer/same_model.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <string_view>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// Runs work that is local to this rank. Returns its failure, if any.
template <class Body>
std::optional<Fault> attempt(Body&& body) {
    try {
        body();
        return std::nullopt;
    } catch (const std::exception&) {
        return fault_of_exception({.code = ErrorCode::refused});
    }
}

/// If any rank failed, all ranks throw the error of the lowest one; the group remains usable.
/// Collective.
template <class World>
void agree_on_success(World& world, std::string_view operation, const std::optional<Fault>& mine) {
    const std::array<std::uint64_t, 1> code = {mine ? static_cast<std::uint64_t>(mine->code) : 0};
    List<std::uint64_t> all(static_cast<std::size_t>(world.size()));
    gather_words(world, code, all, caller_named(operation));
    for (int rank = 0; rank < world.size(); ++rank) {
        const std::uint64_t found = all[static_cast<std::size_t>(rank)];
        if (found == 0) continue;
        std::string text = mine ? mine->message : std::string();
        broadcast_text(world, text, rank);
        const int known_as = world.world_rank(rank);
        if (world.size() > 1) text = concat({"rank ", known_as, ": ", text});
        throw agreed_error(Fault{.code = static_cast<ErrorCode>(found),
                                 .rank = known_as,
                                 .peer = -1,
                                 .operation = std::string(operation),
                                 .sequence = 0,
                                 .message = text});
    }
}

} // namespace detail
UNISONO_NAMESPACE_END

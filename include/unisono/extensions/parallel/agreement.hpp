#pragma once

/// \file
/// Compares facts that must be equal on all ranks of a group, as one number.

#include "unisono/collective/exchange.hpp"
#include "unisono/core/hash.hpp"
#include "unisono/core/text.hpp"
#include "unisono/group/group.hpp"
#include "unisono/trainer/failure.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// FNV-1a over numbers and texts, and over the lengths of the texts.
class Fingerprint {
public:
    Fingerprint& add(std::uint64_t value) {
        hash_ = fnv1a(hash_, value);
        return *this;
    }
    Fingerprint& add(std::string_view text) {
        for (const char c : text) add(std::uint64_t{static_cast<unsigned char>(c)});
        return add(std::uint64_t{256} + text.size());
    }
    [[nodiscard]] std::uint64_t value() const { return hash_; }

private:
    std::uint64_t hash_ = fnv_basis;
};

/// Compares a number with rank 0's. The group remains usable. `here` and `expected` are used in the
/// message. \throws error mismatch, on all ranks: a rank has another number than rank 0
template <class World>
void agree_on_fingerprint(World& world, std::string_view operation, const Fingerprint& mine, const std::string& here,
                          std::string_view expected) {
    if (world.size() == 1) return;
    std::vector<std::uint64_t> all(static_cast<std::size_t>(world.size()));
    all_gather(world, std::vector<std::uint64_t>{mine.value()}, all);
    for (std::size_t rank = 1; rank < all.size(); ++rank) {
        if (all[rank] == all[0]) continue;
        Fault found = world.blame(
            ErrorCode::mismatch, static_cast<int>(rank), std::string(operation),
            {"differs from rank ", world.world_rank(0), " (here: ", here, "); expected ", expected, " on all ranks"});
        found.peer = world.world_rank(0);
        throw agreed_error(std::move(found));
    }
}

} // namespace detail
UNISONO_NAMESPACE_END

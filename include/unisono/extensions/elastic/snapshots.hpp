#pragma once

/// \file
/// In an elastic world, state that only its owner has: each rank copies it from time to time, and
/// sends a copy to the next rank. When ranks are lost, all others return to the last copy.
///
/// The copies of all ranks after one update are a snapshot. A world numbers its snapshots; all its
/// ranks take the same ones. A rank keeps the last two, since ranks may be lost while the newest is
/// copied. It keeps those of an earlier world until the next world has copied its state.

#include "unisono/core/error.hpp"
#include "unisono/core/list.hpp"
#include "unisono/core/policy.hpp"
#include "unisono/core/text.hpp"
#include "unisono/extensions/elastic/memory.hpp"
#include "unisono/launch/root_cause.hpp"
#include "unisono/layout/layout.hpp"
#include "unisono/layout/owners.hpp"
#include "unisono/model/model.hpp"
#include "unisono/trainer/failure.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

// A copy of the parameters and optimizer state of a rank's slices, as bytes that any rank can
// read, whichever slices it owns.

/// Calls visit(i, at_i, j, at_j, count) for each range that a[i] and b[j] have in common; it begins
/// at offset at_i in a[i] and at offset at_j in b[j]. Both lists are in flat order.
template <class Visit>
void for_each_overlap(std::span<const Slice> a, std::span<const Slice> b, Visit visit) {
    for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
        const std::size_t first = std::max(a[i].first, b[j].first), end = std::min(a[i].end(), b[j].end());
        if (first < end) visit(i, first - a[i].first, j, first - b[j].first, end - first);
        if (a[i].end() < b[j].end()) ++i;
        else ++j;
    }
}
/// The offset of each slice in memory that holds all slices one after another, and the total.
inline List<std::size_t> starts_of(std::span<const Slice> slices) {
    List<std::size_t> starts;
    std::size_t at = 0;
    for (const Slice& one : slices) {
        starts.push_back(at);
        at += one.count;
    }
    starts.push_back(at);
    return starts;
}

/// Layout of the copy: slices, then parameters, then each array of optimizer state.
template <class T>
class SliceRecord {
public:
    /// The number of bytes of a copy of these slices.
    static std::size_t bytes(std::span<const Slice> slices, std::size_t arrays) {
        return header(slices.size()) + (1 + arrays) * starts_of(slices)[slices.size()] * sizeof(T);
    }

    /// Copies the trainer's `slices` to `to`.
    template <class Trainer>
    static void write(Trainer& trainer, std::span<const Slice> slices, std::vector<std::uint8_t>& to) {
        auto& state = arrays_behind(trainer.state().optimizer_state());
        const auto copies = state_copies(trainer.world(), trainer.trained());
        to.resize(bytes(slices, state.size()));
        const std::uint64_t count = slices.size();
        copy_bytes(to.data(), &count, sizeof count);
        copy_bytes(to.data() + sizeof count, slices.data(), slices.size_bytes());
        const List<std::size_t> starts = starts_of(slices);
        std::uint8_t* values = to.data() + header(slices.size());
        for (std::size_t i = 0; i < slices.size(); ++i)
            trainer.visit_parameters(slices[i], [&](std::size_t flat, std::span<const T> some) {
                copy_bytes(values + (starts[i] + flat - slices[i].first) * sizeof(T), some.data(), some.size_bytes());
            });
        const std::span<const Slice> owned = trainer.state().owned();
        const List<std::size_t> places = starts_of(owned);
        for (std::size_t a = 0; a < state.size(); ++a) {
            values += starts[slices.size()] * sizeof(T);
            for_each_overlap(slices, owned,
                             [&](std::size_t i, std::size_t at_i, std::size_t j, std::size_t at_j, std::size_t n) {
                                 copies.to_host(values + (starts[i] + at_i) * sizeof(T),
                                                state.array(a).data() + places[j] + at_j, n * sizeof(T));
                             });
        }
    }

    explicit SliceRecord(std::span<const std::uint8_t> bytes) {
        std::uint64_t count = 0;
        copy_bytes(&count, bytes.data(), sizeof count);
        slices_.resize(count);
        copy_bytes(slices_.data(), bytes.data() + sizeof count, count * sizeof(Slice));
        starts_ = starts_of(slices_);
        values_ = bytes.data() + header(count);
    }

    /// Copies the parameters to the trainer: to the model, or to the trainer's memory of a model in
    /// units. Local, unless ranks also hold a 16-bit copy of such a model.
    template <class Trainer>
    void read_parameters(Trainer& trainer) const {
        const auto copies = state_copies(trainer.world(), trainer.trained());
        const auto copy = [&](std::size_t flat, const auto& to) {
            const Slice wanted{flat, to.size()};
            for_each_overlap({&wanted, 1}, slices_,
                             [&](std::size_t, std::size_t at, std::size_t j, std::size_t at_j, std::size_t n) {
                                 copies.to_device(to.data() + at, values_ + (starts_[j] + at_j) * sizeof(T),
                                                  n * sizeof(T));
                             });
        };
        if constexpr (requires { trainer.state().rewrite_parameters(copy); }) trainer.state().rewrite_parameters(copy);
        else {
            std::size_t flat = 0;
            for_each_span(trainer.trained().parameters(), [&](auto one) {
                copy(flat, one);
                if constexpr (model_on_device<std::remove_cvref_t<decltype(trainer.trained())>>)
                    trainer.state().kernels().write_low_weights(one.data(), one.size());
                flat += one.size();
            });
        }
    }
    /// Copies the optimizer's state of the elements that the trainer owns. Local.
    template <class Trainer>
    void read_state(Trainer& trainer) const {
        auto& state = arrays_behind(trainer.state().optimizer_state());
        const auto copies = state_copies(trainer.world(), trainer.trained());
        const std::span<const Slice> owned = trainer.state().owned();
        const List<std::size_t> places = starts_of(owned);
        const std::uint8_t* values = values_;
        for (std::size_t a = 0; a < state.size(); ++a) {
            values += starts_[slices_.size()] * sizeof(T);
            for_each_overlap(slices_, owned,
                             [&](std::size_t i, std::size_t at_i, std::size_t j, std::size_t at_j, std::size_t n) {
                                 copies.to_device(state.array(a).data() + places[j] + at_j,
                                                  values + (starts_[i] + at_i) * sizeof(T), n * sizeof(T));
                             });
        }
    }

private:
    static std::size_t header(std::size_t slices) { return sizeof(std::uint64_t) + slices * sizeof(Slice); }

    List<Slice> slices_;
    List<std::size_t> starts_;
    const std::uint8_t* values_ = nullptr;
};

} // namespace detail

/// In an elastic world, state that only its owner has (sharded state, a parameter server's) is
/// copied to a second rank every `every` updates of `fit`. When ranks are lost or added, all ranks
/// return to the last copy and repeat the updates since then; with Reproducible, with the same
/// bits. Without Snapshots such policies are refused in elastic worlds. In other worlds, and if
/// every rank has all state, it does nothing.
///
/// With n parameters, p ranks and an optimizer of a arrays, in elements per rank:
/// - every copy moves n/p * (1 + a) elements in memory, and the same number to the next rank, in
///   one message;
/// - memory is 4 * n/p * (1 + a): two snapshots, each of this rank and of the rank before it.
/// With StateSharding and Adam or AdamW that is less than the state that Replicated holds, from 8
/// ranks on.
///
/// Errors: peer_lost, the same on all ranks, if a rank and the next one are lost together, before
/// the others have copied their state again. bad_input: `every` is less than 1. mismatch: it
/// differs between ranks.
/// Source: Wang et al., "GEMINI" (SOSP'23), on checkpoints in the memory of other machines.
struct Snapshots {
    static constexpr std::string_view name = "snapshots at the next rank";
    static constexpr Family family = Family::snapshots;
    static constexpr bool copies = true;
    std::int64_t every = 16; ///< updates of `fit`; at least 1. `step` and `collectively` always end with a snapshot
    friend bool operator==(const Snapshots&, const Snapshots&) = default;

    void check() const {
        if (every < 1) refuse_input({"Snapshots.every is ", every, "; expected at least 1"});
    }
};
static_assert(policy_of<Snapshots, Family::snapshots>);

namespace detail {

struct NoSnapshots {
    static constexpr std::string_view name = "no snapshots";
    static constexpr Family family = Family::snapshots;
    static constexpr bool copies = false;
    friend bool operator==(const NoSnapshots&, const NoSnapshots&) = default;
};

/// The order of snapshots.
struct SnapshotKey {
    std::uint64_t epoch = 0;  ///< epoch of the world, plus 1; 0: none
    std::uint64_t number = 0; ///< number of the snapshot in that world
    // NOLINTNEXTLINE(modernize-use-nullptr): it takes the comparison's 0 for a pointer
    friend auto operator<=>(const SnapshotKey&, const SnapshotKey&) = default;
    friend bool operator==(const SnapshotKey&, const SnapshotKey&) = default; // nvcc does not derive it
};

/// The part of a snapshot that a rank keeps, as the words that it sends to the others.
struct KeptWords {
    SnapshotKey key = {};
    std::uint64_t rank = 0;         ///< this rank in the world of the snapshot
    std::uint64_t ranks = 0;        ///< number of ranks of that world
    std::uint64_t own_bytes = 0;    ///< this rank's slices; 0: it owns nothing
    std::uint64_t before_bytes = 0; ///< those of the rank before it; 0: they have not arrived, or there are none
    std::uint64_t number_bytes = 0; ///< bytes of the numbers that all ranks have
    std::uint64_t owners = 0;       ///< number of ranks of that world that own anything
};

/// A snapshot to which all ranks may return, and which rank has which of its slices.
struct FoundSnapshot {
    SnapshotKey key = {};
    /// For the slices of each rank: a rank of the current world that has them; -1: none.
    std::vector<int> holders = {};
    std::vector<std::uint64_t> bytes = {}; ///< bytes of each rank's slices
    int source = -1;                       ///< a rank that has the numbers
    std::uint64_t number_bytes = 0;
    std::uint64_t owners = 0;
    /// The number of ranks whose slices no rank has.
    [[nodiscard]] std::uint64_t gone() const {
        const auto held = std::count_if(holders.begin(), holders.end(), [](int holder) { return holder >= 0; });
        return owners - static_cast<std::uint64_t>(held);
    }
    [[nodiscard]] bool whole() const { return !holders.empty() && gone() == 0; }
};

/// Finds the snapshot `key` in what the ranks have told: `kept[r]` is rank r's.
inline FoundSnapshot find_snapshot(const SnapshotKey& key, const std::vector<std::vector<KeptWords>>& kept) {
    FoundSnapshot found{.key = key};
    for (std::size_t r = 0; r < kept.size(); ++r)
        for (const KeptWords& one : kept[r]) {
            if (one.key != key) continue;
            found.holders.resize(one.ranks, -1);
            found.bytes.resize(one.ranks);
            const auto holds = [&](std::uint64_t slice, std::uint64_t bytes) {
                if (bytes == 0 || found.holders[slice] >= 0) return;
                found.holders[slice] = static_cast<int>(r);
                found.bytes[slice] = bytes;
            };
            holds(one.rank, one.own_bytes);
            holds((one.rank + one.ranks - 1) % one.ranks, one.before_bytes);
            if (found.source < 0) found.source = static_cast<int>(r);
            found.number_bytes = one.number_bytes;
            found.owners = one.owners;
        }
    return found;
}

/// The newest snapshot of which some rank has every slice. If there is none, the one that lacks the
/// fewest slices.
inline FoundSnapshot newest_whole(const std::vector<std::vector<KeptWords>>& kept) {
    std::vector<SnapshotKey> keys;
    for (const auto& of_rank : kept)
        for (const KeptWords& one : of_rank) keys.push_back(one.key);
    std::sort(keys.rbegin(), keys.rend());
    FoundSnapshot best;
    for (const SnapshotKey& key : keys) {
        FoundSnapshot found = find_snapshot(key, kept);
        if (found.whole()) return found;
        if (best.holders.empty() || found.gone() < best.gone()) best = std::move(found);
    }
    return best;
}

/// Encodes a rank of a snapshot's world by its member number; below 0 if it owns nothing.
constexpr int owner_word(int number, bool owns) { return owns ? number : ~number; }
constexpr int number_of(int word) { return word < 0 ? ~word : word; }

/// Throws the error, the same on all ranks, for state that no rank has any more. `owners`: the
/// words of the ranks of the snapshot's world.
[[noreturn]] inline void throw_state_lost(const FoundSnapshot& found, std::span<const int> owners) {
    std::string gone;
    for (std::size_t i = 0; i < owners.size(); ++i)
        if (owners[i] >= 0 && found.holders[i] < 0)
            gone += concat({gone.empty() ? "" : ", ", "rank ", owners[i], " (copied to rank ",
                            number_of(owners[(i + 1) % owners.size()]), ")"});
    const std::string what = gone.empty() ? std::string("the newest update") : concat({"the slices of ", gone});
    throw agreed_error(
        Fault{.code = ErrorCode::peer_lost,
              .operation = "elastic",
              .message = concat({"no rank has the state of ", what,
                                 " any more (ranks are member numbers): the ranks that had it were lost before others "
                                 "had copied it (Snapshots); start again from a checkpoint"})});
}

} // namespace detail
UNISONO_NAMESPACE_END

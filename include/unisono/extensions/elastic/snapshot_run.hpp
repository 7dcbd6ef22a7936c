#pragma once

/// \file
/// The snapshots that a rank keeps. They are taken, agreed on after a loss, and restored.

#include "unisono/collective/exchange.hpp"
#include "unisono/collective/point_to_point.hpp"
#include "unisono/collective/rooted.hpp"
#include "unisono/extensions/elastic/snapshots.hpp"
#include "unisono/trainer/agreement.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// A rank's part of a snapshot.
struct KeptSnapshot {
    SnapshotKey key = {};
    std::vector<int> owners = {};                    ///< one word per rank of its world (owner_word)
    int rank = 0;                                    ///< this rank's index in `owners`
    std::vector<std::uint8_t> own = {}, before = {}; ///< slices of this rank, and of the rank before it
    bool arrived = false;                            ///< `before` has arrived
    std::vector<std::uint8_t> numbers = {};

    [[nodiscard]] KeptWords words() const {
        const std::size_t here = static_cast<std::size_t>(rank),
                          before_here = (here + owners.size() - 1) % owners.size();
        const auto all = std::count_if(owners.begin(), owners.end(), [](int number) { return number >= 0; });
        return {.key = key,
                .rank = here,
                .ranks = owners.size(),
                .own_bytes = owners[here] >= 0 ? own.size() : 0,
                .before_bytes = arrived && owners[before_here] >= 0 ? before.size() : 0,
                .number_bytes = numbers.size(),
                .owners = static_cast<std::uint64_t>(all)};
    }
};

/// The snapshots of one trainer, over all worlds.
template <class T>
class SnapshotRun {
public:
    /// Called when a world begins, in which ranks may own other slices. Collective.
    template <class Trainer>
    void enter(Trainer& trainer, std::uint64_t epoch, const std::vector<int>& members) {
        auto& world = trainer.world();
        const auto ranks = static_cast<std::size_t>(world.size()), rank = static_cast<std::size_t>(world.rank());
        epoch_ = epoch + 1;
        number_ = 0;
        owners_ = members;
        mine_ = {};
        for (const Slice& one : trainer.state().owned()) mine_.push_back(one);
        const std::size_t arrays = trainer.state().optimizer_state().size(), all = trainer.layout().count();
        const std::array<std::uint64_t, 2> own = {SliceRecord<T>::bytes(mine_, arrays), starts_of(mine_)[mine_.size()]};
        List<std::uint64_t> of_ranks(own.size() * ranks);
        gather_words(world, own, of_ranks);
        const std::size_t before = (rank + ranks - 1) % ranks;
        before_bytes_ = of_ranks[own.size() * before];
        bool all_own_all = ranks > 1;
        const auto note = [&](std::size_t r, std::size_t elements) {
            owners_[r] = owner_word(members[r], elements > 0);
        };
        for (std::size_t r = 0; r < ranks; ++r) {
            note(r, of_ranks[own.size() * r + 1]);
            all_own_all = all_own_all && of_ranks[own.size() * r + 1] == all;
        }
        if (!all_own_all) return;
        const auto part = [&](std::size_t r) {
            return Slice{all * r / ranks, all * (r + 1) / ranks - all * r / ranks};
        };
        for (std::size_t r = 0; r < ranks; ++r) note(r, part(r).count);
        mine_ = {};
        mine_.push_back(part(rank));
        const Slice of_other = part(before);
        before_bytes_ = SliceRecord<T>::bytes({&of_other, 1}, arrays);
    }

    /// Takes a snapshot. Collective; a rank may return before others have theirs. `first`: the
    /// first one in this world, so those of earlier worlds are kept until all ranks have this one.
    template <class Trainer>
    void take(Trainer& trainer, std::vector<std::uint8_t> numbers, bool first) {
        auto& world = trainer.world();
        KeptSnapshot next;
        if (!first) {
            if (!std::exchange(all_have_it_, false)) barrier(world);
            if (kept_.size() > 1) next = std::move(kept_.front()); // reuses its memory
            kept_.erase(kept_.begin(), kept_.end() - 1);
        }
        next.key = {epoch_, number_++};
        next.owners = owners_;
        next.rank = world.rank();
        next.arrived = false;
        next.numbers = std::move(numbers);
        SliceRecord<T>::write(trainer, mine_, next.own);
        kept_.push_back(std::move(next));
        if (world.size() == 1) return;
        KeptSnapshot& now = kept_.back();
        now.before.resize(before_bytes_);
        const int ranks = world.size();
        Operation from = start_receive(world, std::span<std::uint8_t>(now.before), (now.rank + ranks - 1) % ranks);
        Operation to = start_send(world, std::span<const std::uint8_t>(now.own), (now.rank + 1) % ranks);
        from.wait();
        to.wait();
        now.arrived = true;
    }
    /// Called when all ranks have made an update since the last snapshot, so all of them have it.
    void note_update() { all_have_it_ = true; }
    /// Returns when the last snapshot is complete: no rank goes back to a state before it.
    /// Collective.
    template <class World>
    void confirm(World& world) {
        barrier(world);
        all_have_it_ = true;
        confirmed_ = kept_.back().key;
    }

    /// Returns the newest complete snapshot; nothing if there is none yet, because no rank has
    /// completed the start of its trainer. `finished`: as for `bring_forward`; becomes the maximum
    /// over all ranks. Collective. Errors: see Snapshots.
    template <class World>
    std::optional<FoundSnapshot> agree(World& world, std::uint64_t& finished) {
        const auto ranks = static_cast<std::size_t>(world.size());
        const std::array<std::uint64_t, 4> mine = {finished, confirmed_.epoch, confirmed_.number, kept_.size()};
        List<std::uint64_t> all(mine.size() * ranks);
        gather_words(world, mine, all);
        SnapshotKey passed;
        std::uint64_t most = 0;
        for (std::size_t at = 0; at < all.size(); at += mine.size()) {
            finished = std::max(finished, all[at]);
            passed = std::max(passed, SnapshotKey{all[at + 1], all[at + 2]});
            most = std::max(most, all[at + 3]);
        }
        const FoundSnapshot found = newest_whole(tell(world, most));
        if (passed.epoch == 0 && !found.whole()) {
            kept_.clear();
            return std::nullopt;
        }
        if (found.whole() && found.key >= passed) return found;
        std::vector<int> owners(found.holders.size());
        if (found.source >= 0) {
            if (found.source == world.rank()) owners = of(found.key).owners;
            broadcast(world, std::span<int>(owners), found.source);
        }
        throw_state_lost(found, owners);
    }
    /// Restores the trainer's parameters, and the state that it owns, from that snapshot. Returns
    /// the snapshot's numbers. `keeps_all`: also keeps a copy of all slices, until `forget_all`.
    /// Collective. Each slice is broadcast by a rank that has it.
    template <class Trainer>
    std::vector<std::uint8_t> go_back(Trainer& trainer, const FoundSnapshot& found, bool keeps_all) {
        auto& world = trainer.world();
        all_.clear();
        std::vector<std::uint8_t> room;
        const auto from = [&](int holder, std::size_t bytes, auto held) {
            if (holder == world.rank()) {
                std::vector<std::uint8_t>& here = held(of(found.key));
                broadcast(world, std::span<std::uint8_t>(here), holder);
                return std::span<const std::uint8_t>(here);
            }
            room.resize(bytes);
            broadcast(world, std::span<std::uint8_t>(room), holder);
            return std::span<const std::uint8_t>(room);
        };
        for (std::size_t i = 0; i < found.holders.size(); ++i) {
            if (found.holders[i] < 0) continue; // a rank that owns nothing
            const auto bytes =
                from(found.holders[i], found.bytes[i], [&](KeptSnapshot& one) -> std::vector<std::uint8_t>& {
                    return one.rank == static_cast<int>(i) ? one.own : one.before;
                });
            read(trainer, bytes);
            if (keeps_all) all_.emplace_back(bytes.begin(), bytes.end());
        }
        const auto numbers = from(found.source, found.number_bytes,
                                  [](KeptSnapshot& one) -> std::vector<std::uint8_t>& { return one.numbers; });
        return {numbers.begin(), numbers.end()};
    }

    /// Gives all slices to a trainer in which this rank is alone.
    template <class Trainer>
    void read_all(Trainer& trainer) const {
        for (const auto& bytes : all_) read(trainer, bytes);
    }
    void forget_all() { all_.clear(); }

    /// For `describe`: the bytes that this rank sends with each snapshot, and those of two
    /// snapshots here.
    [[nodiscard]] std::string sentence(std::int64_t every) const {
        const std::size_t sent = kept_.empty() ? 0 : kept_.back().own.size();
        const std::size_t kept = kept_.empty() ? 0 : 2 * (sent + kept_.back().before.size());
        return concat({"elastic: every ", every,
                       " updates each rank copies its slices to the next rank: ", bytes_text(sent), " sent, ",
                       bytes_text(kept), " kept on this rank; when ranks are lost, all go back to the last copy\n"});
    }

private:
    template <class Trainer>
    static void read(Trainer& trainer, std::span<const std::uint8_t> bytes) {
        const SliceRecord<T> slices(bytes);
        slices.read_parameters(trainer);
        slices.read_state(trainer);
    }
    /// Tells all ranks which snapshots each rank keeps.
    template <class World>
    std::vector<std::vector<KeptWords>> tell(World& world, std::size_t most) const {
        std::vector<std::vector<KeptWords>> kept(static_cast<std::size_t>(world.size()));
        if (most == 0) return kept;
        using Words = std::array<std::uint64_t, sizeof(KeptWords) / sizeof(std::uint64_t)>;
        constexpr std::size_t words = Words().size();
        List<std::uint64_t> mine(words * most), all(mine.size() * kept.size());
        for (std::size_t i = 0; i < kept_.size(); ++i) {
            const auto one = std::bit_cast<Words>(kept_[i].words());
            std::copy(one.begin(), one.end(), mine.begin() + static_cast<std::ptrdiff_t>(words * i));
        }
        gather_words(world, mine, all);
        for (std::size_t at = 0; at < all.size(); at += words) {
            Words one;
            std::copy_n(all.begin() + static_cast<std::ptrdiff_t>(at), words, one.begin());
            if (one[0] != 0) kept[at / mine.size()].push_back(std::bit_cast<KeptWords>(one));
        }
        return kept;
    }
    [[nodiscard]] KeptSnapshot& of(const SnapshotKey& key) {
        return *std::find_if(kept_.begin(), kept_.end(), [&](const KeptSnapshot& one) { return one.key == key; });
    }

    std::vector<KeptSnapshot> kept_;             ///< in order of age, the newest last
    std::vector<std::vector<std::uint8_t>> all_; ///< all slices of the snapshot to which this rank went back
    List<Slice> mine_;                           ///< slices that this rank copies
    std::vector<int> owners_;                    ///< as in KeptSnapshot
    std::size_t before_bytes_ = 0;
    std::uint64_t epoch_ = 0, number_ = 0; ///< key of the next snapshot
    SnapshotKey confirmed_ = {};
    bool all_have_it_ = false; ///< all ranks have the last snapshot
};

} // namespace detail
UNISONO_NAMESPACE_END

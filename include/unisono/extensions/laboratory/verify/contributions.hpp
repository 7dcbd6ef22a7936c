#pragma once

/// \file
/// The symbolic values and memory of the proofs. A value is the set of ranks whose contributions to
/// a block a piece of memory holds. The sets are exact. A set of ranks is an arc of the circle of
/// ranks if possible (two numbers), else a bit set that is kept once, so that equal sets have equal
/// names and most unions cost a few instructions.

#include "unisono/core/text.hpp"
#include "unisono/extensions/laboratory/verify/program.hpp"
#include "unisono/schedule/schedule.hpp"

#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN

namespace schedule::detail {

/// The sum of the contributions of the ranks `who` to `block`. who == 0: not written yet.
struct Value {
    std::uint32_t block = 0;
    std::uint32_t who = 0;
    friend bool operator==(const Value&, const Value&) = default;
};

class ContributionSets {
public:
    using Id = std::uint32_t; ///< 0: empty; else start and count of an arc, or the number of a bit set plus `pooled`
    static constexpr int most_ranks = 32767;

    explicit ContributionSets(int world)
        : world_(static_cast<std::uint32_t>(world)), words_((static_cast<std::size_t>(world) + 63) / 64) {}

    [[nodiscard]] static Id one(int rank) { return arc(static_cast<std::uint32_t>(rank), 1); }
    [[nodiscard]] Id all() const { return arc(0, world_); }

    /// The union; `twice` is set if the two have a rank in common.
    Id merge(Id a, Id b, bool& twice) {
        if (a == 0 || b == 0) return a | b;
        if (((a | b) & pooled) == 0) {
            const std::uint32_t total = count_of(a) + count_of(b);
            if (total <= world_) {
                if (end_of(a) == start_of(b)) return total == world_ ? all() : arc(start_of(a), total);
                if (end_of(b) == start_of(a)) return total == world_ ? all() : arc(start_of(b), total);
            }
        }
        if (a == last_a_ && b == last_b_) return twice |= last_.second, last_.first;
        const auto [known, is_new] = unions_.try_emplace((std::uint64_t{a} << 32) | b);
        if (is_new) known->second = merge_bits(a, b);
        last_a_ = a, last_b_ = b, last_ = known->second;
        return twice |= last_.second, last_.first;
    }

    /// Ranks in one but not in the other, in words, for messages.
    [[nodiscard]] std::string describe_missing(Id whole, Id part) const {
        std::vector<std::uint64_t> bits(words_), other(words_);
        add_to(bits, whole), add_to(other, part);
        std::string text;
        std::size_t count = 0;
        for (std::uint32_t rank = 0; rank < world_; ++rank) {
            if (!test(bits, rank) || test(other, rank)) continue;
            if (++count <= 8) text += concat({count == 1 ? "" : ", ", rank});
        }
        if (count > 8) text += concat({" and ", count - 8, " more"});
        return (count == 1 ? "rank " : "ranks ") + (count == 0 ? std::string("none") : text);
    }
    /// Ranks in both.
    [[nodiscard]] std::string describe_common(Id a, Id b) {
        std::vector<std::uint64_t> bits(words_), other(words_);
        add_to(bits, a), add_to(other, b);
        for (std::size_t word = 0; word < words_; ++word) bits[word] &= other[word];
        return describe_missing(intern(std::move(bits)), 0);
    }

private:
    static constexpr Id pooled = 0x8000'0000u;
    static Id arc(std::uint32_t start, std::uint32_t count) { return (start << 16) | count; }
    static std::uint32_t start_of(Id id) { return id >> 16; }
    static std::uint32_t count_of(Id id) { return id & 0xffffu; }
    [[nodiscard]] std::uint32_t end_of(Id id) const {
        const std::uint32_t end = start_of(id) + count_of(id);
        return end >= world_ ? end - world_ : end;
    }
    static bool test(const std::vector<std::uint64_t>& bits, std::uint32_t rank) {
        return ((bits[rank / 64] >> (rank % 64)) & 1u) != 0;
    }

    void add_to(std::vector<std::uint64_t>& bits, Id id) const {
        if ((id & pooled) != 0) {
            const std::size_t at = (id & ~pooled) * words_;
            for (std::size_t word = 0; word < words_; ++word) bits[word] |= pool_[at + word];
            return;
        }
        for (std::uint32_t i = 0, rank = start_of(id); i < count_of(id); ++i, rank = rank + 1 == world_ ? 0 : rank + 1)
            bits[rank / 64] |= std::uint64_t{1} << (rank % 64);
    }

    std::pair<Id, bool> merge_bits(Id a, Id b) {
        std::vector<std::uint64_t> bits(words_), other(words_);
        add_to(bits, a), add_to(other, b);
        bool twice = false;
        for (std::size_t word = 0; word < words_; ++word) {
            twice |= (bits[word] & other[word]) != 0;
            bits[word] |= other[word];
        }
        return {intern(std::move(bits)), twice};
    }

    /// The unique name of a set: an arc if the set is one.
    Id intern(std::vector<std::uint64_t> bits) {
        std::uint32_t count = 0, starts = 0, start = 0;
        for (std::uint32_t rank = 0; rank < world_; ++rank) {
            if (!test(bits, rank)) continue;
            ++count;
            if (!test(bits, rank == 0 ? world_ - 1 : rank - 1)) ++starts, start = rank;
        }
        if (count == 0) return 0;
        if (count == world_) return all();
        if (starts == 1) return arc(start, count);
        std::uint64_t hash = 0;
        for (const std::uint64_t word : bits) hash = (hash ^ word) * 0x9e3779b97f4a7c15u, hash ^= hash >> 29;
        auto& candidates = by_hash_[hash];
        for (const Id candidate : candidates) {
            bool same = true;
            for (std::size_t word = 0; word < words_ && same; ++word)
                same = pool_[(candidate & ~pooled) * words_ + word] == bits[word];
            if (same) return candidate;
        }
        const Id id = pooled | static_cast<Id>(pool_.size() / words_);
        pool_.insert(pool_.end(), bits.begin(), bits.end());
        candidates.push_back(id);
        return id;
    }

    std::uint32_t world_;
    std::size_t words_;
    std::vector<std::uint64_t> pool_;
    std::unordered_map<std::uint64_t, std::vector<Id>> by_hash_;
    std::unordered_map<std::uint64_t, std::pair<Id, bool>> unions_;
    Id last_a_ = 0, last_b_ = 0;
    std::pair<Id, bool> last_ = {};
};

/// The required contents of a rank's output at the end.
struct Expected {
    Collective collective;
    int root;
    Value operator()(const ContributionSets& sets, int rank, std::uint32_t block) const {
        switch (collective) {
        case Collective::all_gather:
        case Collective::gather: return {block, ContributionSets::one(static_cast<int>(block))};
        case Collective::broadcast:
        case Collective::scatter: return {block, ContributionSets::one(root)};
        case Collective::all_to_all:
            return {static_cast<std::uint32_t>(rank), ContributionSets::one(static_cast<int>(block))};
        default: return {block, sets.all()};
        }
    }
};

/// Describes how a value differs from the expected one; `name` says where the value lies.
inline std::string describe_difference(const ContributionSets& sets, const std::string& name, const Value& found,
                                       const Value& expected) {
    if (found.who == 0) return concat({name, " was never written"});
    if (found.block != expected.block)
        return concat({name, " holds block ", found.block, ", expected block ", expected.block});
    const std::string missing = sets.describe_missing(expected.who, found.who);
    const std::string surplus = sets.describe_missing(found.who, expected.who);
    std::string text = concat({name, " differs:"});
    if (missing != "ranks none") text += concat({" it lacks the contribution of ", missing});
    if (surplus != "ranks none") text += concat({" it holds that of ", surplus});
    return text;
}

/// The symbolic memory of all ranks for the proof of message schedules: input, output and scratch
/// as cells of one block, and the rules about what may be read and written.
class SymbolicMemory {
public:
    static constexpr std::uint32_t nothing = 0; ///< no round has this number
    struct Cell {
        Value value;
        std::uint32_t received = 0;                ///< the number of the rank's round that receives into it
        std::uint32_t run_slot = 0, run_block = 0; ///< scratch: the packed run as part of which it was written
    };

    /// Each input holds its rank's contribution; all other memory holds nothing.
    SymbolicMemory(const Program& program, bool in_place, Journal& journal)
        : program_(program), journal_(journal), in_place_(in_place), blocks_(program.blocks),
          scratch_at_(program.ranks.size()), reach_(program.ranks.size()) {
        input_.resize(program.ranks.size() * blocks_);
        if (!in_place) output_.resize(program.ranks.size() * blocks_);
        std::size_t slot_count = 0;
        for (int rank = 0; rank < program.world; ++rank) {
            scratch_at_[index(rank)] = slot_count;
            slot_count += program.at(rank).scratch_slots;
            for (std::uint32_t block = 0; block < blocks_; ++block) {
                const Value own{block, ContributionSets::one(rank)};
                if (program.has_input(rank, block)) cell(rank, Buffer::input, block).value = own;
                if (program.collective == Collective::broadcast && rank == program.root)
                    cell(rank, Buffer::output, block).value = own;
            }
        }
        scratch_.resize(slot_count);
    }

    Cell& cell(int rank, Buffer where, std::uint32_t block) {
        const std::size_t at = index(rank) * blocks_ + block;
        return where == Buffer::output && !in_place_ ? output_[at] : input_[at];
    }
    /// The i-th block of a valid range.
    Cell& cell(int rank, const Blocks& range, std::uint32_t i) {
        return range.where == Buffer::scratch ? scratch_[scratch_at_[index(rank)] + range.slot + range.ahead + i]
                                              : cell(rank, range.where, range.first + i);
    }
    static bool same_run(const Cell& at, const Blocks& range) {
        return range.where != Buffer::scratch ||
               (at.run_slot == range.slot && at.run_block == range.first - range.ahead);
    }

    /// Received data belong to round number `stamp` from now on.
    void begin_round(std::uint32_t stamp) { stamp_ = stamp; }
    [[nodiscard]] bool is_received(const Cell& at) const { return at.received == stamp_; }

    bool check_range(int rank, const Blocks& range, bool writes, bool say) {
        const auto refuse = [&](const std::string& text) {
            if (say) journal_.fail(text);
            return false;
        };
        if (program_.single_blocks && range.count > 1)
            return refuse("has several blocks although single_blocks is claimed");
        if (range.where == Buffer::posted) return refuse("posted memory is for mapped schedules");
        if (range.count == 0) return true;
        if (std::uint64_t{range.first} + range.count > blocks_)
            return refuse(concat({"block ", range.first + range.count - 1, " does not exist, there are ", blocks_}));
        if (writes && range.where == Buffer::input) return refuse("writes to the input");
        if (range.where == Buffer::scratch) {
            const std::uint32_t slot_count = program_.at(rank).scratch_slots;
            if (range.ahead > range.first || std::uint64_t{range.slot} + range.ahead + range.count > slot_count)
                return refuse(concat({"leaves the scratch memory of ", slot_count, " slots"}));
            return true;
        }
        for (std::uint32_t i = 0; i < range.count; ++i) {
            const std::uint32_t block = range.first + i;
            if (range.where == Buffer::input && !program_.has_input(rank, block))
                return refuse(concat({"this rank is given no input block ", block}));
            if (range.where == Buffer::output && !program_.has_output(rank, block))
                return refuse(concat({"this rank has no output block ", block}));
        }
        return true;
    }

    Value read(const Cell& from, const Blocks& range, std::uint32_t i, const Cell* own_target = nullptr) {
        if (from.received == stamp_ && &from != own_target)
            journal_.fail(
                concat({"reads block ", range.first + i, " while another step of the round receives into it"}));
        if (from.value.who == 0 || !same_run(from, range)) {
            journal_.fail(concat(
                {"reads block ", range.first + i, " from ", name_of(range.where), " before it is written there"}));
            return {};
        }
        return from.value;
    }

    /// Prepares scratch for a write. Other packed runs that may overlap the written range are
    /// invalidated, as blocks have any size.
    void overwrite(int rank, const Blocks& range) {
        if (range.where != Buffer::scratch || range.count == 0) return;
        std::uint32_t& reach = reach_[index(rank)];
        const std::uint32_t end = range.slot + range.ahead + range.count;
        if (range.ahead + range.count - 1 > reach) reach = range.ahead + range.count - 1;
        const std::uint32_t slot_count = program_.at(rank).scratch_slots;
        for (std::uint32_t slot = range.slot; slot < slot_count && slot < end + reach; ++slot) {
            Cell& at = scratch_[scratch_at_[index(rank)] + slot];
            if (!same_run(at, range) && at.run_slot < end) at.value = {};
        }
    }
    void write(Cell& to, const Blocks& range, const Value& value) {
        to.value = value;
        if (range.where == Buffer::scratch) to.run_slot = range.slot, to.run_block = range.first - range.ahead;
    }

private:
    static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

    const Program& program_;
    Journal& journal_;
    bool in_place_;
    std::uint32_t blocks_;
    std::uint32_t stamp_ = nothing;
    std::vector<Cell> input_, output_, scratch_;
    std::vector<std::size_t> scratch_at_;
    std::vector<std::uint32_t> reach_; ///< per rank: how far its longest scratch run extends beyond its first slot
};

} // namespace schedule::detail

UNISONO_NAMESPACE_END

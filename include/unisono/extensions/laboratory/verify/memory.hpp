#pragma once

/// \file
/// The symbolic memory of all ranks for the proof of message schedules: input, output and scratch
/// as cells of one block, and the rules about what may be read and written.

#include "unisono/core/text.hpp"
#include "unisono/extensions/laboratory/verify/contributions.hpp"
#include "unisono/extensions/laboratory/verify/program.hpp"

UNISONO_NAMESPACE_BEGIN

namespace schedule::detail {

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

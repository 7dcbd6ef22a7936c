#pragma once

/// \file
/// The proof for schedules over mapped memory: values as for messages, and freedom from data races.
/// Rank b's access happens before rank a's if b made it before its k-th post and a made its own
/// after awaiting k posts of b, or if b made it in an operation that all ranks have completed when
/// a posts. Two accesses by different ranks to one block, at least one a write, must be ordered in
/// this way. The collective runs six times in a row, each time on new input that its owner writes,
/// so that the proof also finds a rank that leaves too early or reuses a copy too early.

#include "unisono/core/text.hpp"
#include "unisono/extensions/laboratory/verify/contributions.hpp"
#include "unisono/extensions/laboratory/verify/program.hpp"

#include <vector>

UNISONO_NAMESPACE_BEGIN

namespace schedule::detail {

class MappedProof {
public:
    MappedProof(const Program& program, bool in_place, Report& report)
        : program_(program), report_(report), journal_{report, {}}, in_place_(in_place), blocks_(program.blocks),
          sets_(program.world), ranks_(program.ranks.size()), input_(program.ranks.size() * blocks_) {
        std::vector<Step> steps;
        for (int rank = 0; rank < program.world; ++rank) {
            Rank& state = ranks_[index(rank)];
            state.known.resize(ranks_.size());
            for (std::uint32_t round = 0; round < program.at(rank).rounds; ++round) {
                steps.clear();
                program.steps_of(rank, round, steps);
                for (const Step& step : steps) state.posts_each += step.kind == StepKind::post ? 1 : 0;
            }
        }
        if (!in_place) output_.resize(input_.size());
        if (program.collective == Collective::barrier) {
            words_ = (ranks_.size() + 63) / 64;
            heard_.resize(ranks_.size() * words_);
        }
    }

    void run() {
        std::size_t running = ranks_.size();
        for (int rank = 0; rank < program_.world; ++rank) begin_operation(rank);
        for (bool moved = true; moved && running != 0 && !report_.full();) {
            moved = false;
            for (int rank = 0; rank < program_.world && !report_.full(); ++rank) {
                if (ranks_[index(rank)].operation == operations) continue;
                moved |= advance(rank);
                if (ranks_[index(rank)].operation == operations) --running;
            }
        }
        if (report_.full()) return;
        if (running != 0) return explain_deadlock();
        for (int rank = 0; rank < program_.world; ++rank) {
            compare_cost(program_, rank, ranks_[index(rank)].cost, report_);
        }
    }

private:
    static constexpr std::uint32_t operations = 6;
    static constexpr std::uint32_t most_ahead = 4; ///< operations by which a rank that posts may be ahead
    struct Access {
        int rank = -1;
        std::uint32_t posts = 0;     ///< the rank's posts before the access
        std::uint32_t operation = 0; ///< of the rank
    };
    struct Cell {
        Value value;
        Access writer;
        std::vector<Access> readers; ///< the last read of each rank that reads it
    };
    struct Rank {
        std::uint32_t operation = 0, round = 0;
        std::size_t step = 0;
        std::uint32_t posts = 0;
        std::uint32_t posts_each = 0;     ///< in one operation
        std::vector<std::uint32_t> known; ///< the number of posts that it knows each rank to have made
        std::uint32_t all_did = 0;        ///< the number of operations that it knows all ranks to have completed
        std::uint32_t copied = 0;         ///< the first block of its copy
        bool waits = false, has_awaited = true;
        Cost cost;
        std::vector<Step> steps;
    };

    static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
    Cell& cell(int owner, Buffer where, std::uint32_t block, std::uint32_t place = 0) {
        const std::size_t at = index(owner) * blocks_ + block;
        if (where == Buffer::posted) {
            if (posted_.empty()) posted_.resize(most_ahead * input_.size());
            return posted_[place * input_.size() + at];
        }
        return where == Buffer::output && !in_place_ ? output_[at] : input_[at];
    }
    /// Blocks of different runs of the collective have different numbers.
    [[nodiscard]] std::uint32_t number_of(int rank, std::uint32_t block) const {
        return ranks_[index(rank)].operation * (blocks_ + 1) + block;
    }
    [[nodiscard]] std::uint32_t run_of(const Value& value) const { return value.block / (blocks_ + 1); }
    [[nodiscard]] Value plain(const Value& value) const { return {value.block % (blocks_ + 1), value.who}; }
    [[nodiscard]] std::string describe_value(const Value& value) const {
        return concat({"block ", plain(value).block, " of run ", run_of(value)});
    }
    void fail(const std::string& text) { journal_.fail(text); }

    bool ordered(const Access& before, int rank) const {
        if (before.rank < 0 || before.rank == rank) return true;
        const Rank& state = ranks_[index(rank)];
        return before.posts < state.known[index(before.rank)] || before.operation < state.all_did;
    }
    [[nodiscard]] Access now(int rank) const {
        return {rank, ranks_[index(rank)].posts, ranks_[index(rank)].operation};
    }
    std::string describe_cell(int owner, Buffer where, std::uint32_t block) const {
        return concat({name_of(where), "[", block, "] of rank ", owner});
    }

    Value read(int rank, int owner, const Blocks& range, std::uint32_t i, bool user = false) {
        const std::uint32_t block = range.first + i;
        Cell& from = cell(owner, range.where, block, ranks_[index(rank)].operation % most_ahead);
        if (!ordered(from.writer, rank))
            fail(concat({"data race: ", user ? "the caller " : "", "reads ", describe_cell(owner, range.where, block),
                         " while rank ", from.writer.rank, " may write it"}));
        note_read(from, now(rank));
        if (from.value.who == 0 && !user)
            fail(concat({"reads ", describe_cell(owner, range.where, block), " before it is written"}));
        if (range.where == Buffer::posted && range.first - range.ahead != ranks_[index(owner)].copied)
            fail(concat({"looks for ", describe_cell(owner, range.where, block), " behind ", range.ahead,
                         " blocks of a copy that begins with block ", ranks_[index(owner)].copied}));
        return from.value;
    }

    static void note_read(Cell& from, const Access& now) {
        for (Access& before : from.readers)
            if (before.rank == now.rank) return void(before = now);
        from.readers.push_back(now);
    }

    void write(int rank, int owner, Buffer where, std::uint32_t block, const Value& value, bool user = false) {
        Cell& to = cell(owner, where, block, ranks_[index(rank)].operation % most_ahead);
        const char* who = user ? "the caller " : "";
        for (const Access& access : to.readers)
            if (!ordered(access, rank))
                fail(concat({"data race: ", who, "writes ", describe_cell(owner, where, block), " while rank ",
                             access.rank, " may read it"}));
        if (!ordered(to.writer, rank))
            fail(concat({"data race: ", who, "writes ", describe_cell(owner, where, block), " while rank ",
                         to.writer.rank, " may write it"}));
        to.writer = now(rank);
        to.value = value;
    }

    // --- The caller's side ---

    void begin_operation(int rank) {
        Rank& state = ranks_[index(rank)];
        state.round = 0;
        state.has_awaited = true;
        load_round(rank);
        journal_.place = {rank, 0, 0, nullptr};
        for (std::uint32_t block = 0; block < blocks_; ++block) {
            const Value fresh{number_of(rank, block), ContributionSets::one(rank)};
            const bool data = program_.collective == Collective::broadcast && rank == program_.root;
            // The caller owns both buffers between operations; the old contents of the output no
            // longer count.
            if (program_.has_output(rank, block) && !in_place_)
                write(rank, rank, Buffer::output, block, data ? fresh : Value{}, true);
            else if (program_.has_output(rank, block) && in_place_ && !program_.has_input(rank, block))
                write(rank, rank, Buffer::output, block, {}, true);
            if (program_.has_input(rank, block)) write(rank, rank, Buffer::input, block, fresh, true);
        }
        for (std::size_t word = 0; word < words_; ++word) heard_[index(rank) * words_ + word] = 0;
        if (words_ != 0) heard_[index(rank) * words_ + index(rank) / 64] |= std::uint64_t{1} << (index(rank) % 64);
    }

    void end_operation(int rank) {
        const Expected expected{program_.collective, program_.root};
        journal_.place = {rank, ranks_[index(rank)].round, 0, nullptr};
        for (std::uint32_t block = 0; block < blocks_; ++block) {
            if (!program_.has_output(rank, block)) continue;
            const Value found = read(rank, rank, {Buffer::output, block, 1, 0, 0}, 0, true);
            Value wanted = expected(sets_, rank, block);
            wanted.block = number_of(rank, wanted.block);
            if (found == wanted) continue;
            const std::string name = concat({"output[", block, "]"});
            const bool stale = found.who != 0 && run_of(found) != run_of(wanted);
            report_.add(concat({"rank ", rank, ": ",
                                (stale ? concat({name, " holds data of run ", run_of(found),
                                                 " of the collective in run ", run_of(wanted)})
                                       : describe_difference(sets_, name, plain(found), plain(wanted)))}));
        }
        const bool tells = words_ != 0 && ranks_[index(rank)].operation == 0; // all operations are equal
        for (int other = 0; tells && other < program_.world; ++other)
            if (((heard_[index(rank) * words_ + index(other) / 64] >> (index(other) % 64)) & 1u) == 0)
                report_.add(concat({"rank ", rank, " leaves without having heard from rank ", other}));
    }

    // --- Steps ---

    void load_round(int rank) {
        Rank& state = ranks_[index(rank)];
        state.step = 0;
        state.waits = false;
        state.steps.clear();
        if (state.round < program_.at(rank).rounds) program_.steps_of(rank, state.round, state.steps);
    }

    /// Runs a rank until it has to wait. True if it made a step.
    bool advance(int rank) {
        Rank& state = ranks_[index(rank)];
        bool moved = false;
        while (!report_.full()) {
            if (state.round >= program_.at(rank).rounds) {
                end_operation(rank);
                if (++state.operation == operations) return true;
                begin_operation(rank);
                moved = true;
                if (program_.at(rank).rounds == 0) continue;
            }
            if (state.step == state.steps.size()) {
                if (state.operation == 0) state.cost.rounds += state.waits ? 1 : 0;
                ++state.round;
                load_round(rank);
                moved = true;
                continue;
            }
            journal_.place = {rank, state.round, state.step, &state.steps[state.step]};
            if (!run_step(rank, state.steps[state.step])) return moved;
            ++report_.steps;
            ++state.step;
            moved = true;
        }
        return moved;
    }

    bool run_step(int rank, const Step& step) {
        Rank& state = ranks_[index(rank)];
        switch (step.kind) {
        case StepKind::post: return post(rank, step);
        case StepKind::await:
            state.waits = state.has_awaited = true;
            if (state.step + 1 != state.steps.size()) fail("steps after an await belong in the next round");
            if (lacking(rank, step) >= 0) return false;
            for (int peer = 0; peer < program_.world; ++peer)
                if (awaits(step, rank, peer)) hear(rank, peer, posts_of(peer, rank) + step.part + 1);
            return true;
        case StepKind::copy:
        case StepKind::copy_from_peer: copy(rank, step); return true;
        case StepKind::combine_peers: combine(rank, step); return true;
        default: fail("a mapped schedule cannot have steps that send or receive"); return true;
        }
    }

    bool check_range(int owner, const Blocks& range, bool writes) {
        const auto refuse = [&](const std::string& text) {
            fail(text);
            return false;
        };
        if (program_.single_blocks && range.count > 1)
            return refuse("has several blocks although single_blocks is claimed");
        if (range.where == Buffer::scratch) return refuse("scratch is for schedules over messages");
        if (program_.staged && owner != journal_.place.rank && range.where != Buffer::posted)
            return refuse("touches another's buffer although staged is claimed");
        if (range.first + range.count > blocks_) return refuse("there is no such block");
        if (writes && range.where != Buffer::output) return refuse(concat({"writes to the ", name_of(range.where)}));
        if (owner == everyone) {
            for (int each = 0; each < program_.world; ++each)
                if (!check_range(each, range, writes)) return false;
            return true;
        }
        if (owner < 0 || owner >= program_.world) return refuse("there is no such rank");
        for (std::uint32_t block = range.first; block < range.first + range.count; ++block)
            if ((range.where == Buffer::input && !program_.has_input(owner, block)) ||
                (range.where == Buffer::output && !program_.has_output(owner, block)))
                return refuse(concat({"there is no ", describe_cell(owner, range.where, block)}));
        return true;
    }

    bool post(int rank, const Step& step) {
        Rank& state = ranks_[index(rank)];
        const bool is_first = state.posts == posts_of(rank, rank);
        if (is_first) {
            for (const Rank& other : ranks_)
                if (other.operation + most_ahead <= state.operation) return false;
            state.all_did = std::max(state.all_did, state.operation - std::min(state.operation, most_ahead - 1));
        }
        if (!std::exchange(state.has_awaited, false)) fail("posts again without having awaited the others");
        if (step.source.count != 0 && check_range(rank, step.source, false)) {
            if (!is_first) fail("posts a copy that is not its first");
            state.copied = step.source.first;
            for (std::uint32_t i = 0; i < step.source.count; ++i)
                write(rank, rank, Buffer::posted, step.source.first + i, read(rank, rank, step.source, i));
        }
        ++state.posts;
        return true;
    }

    static bool awaits(const Step& step, int rank, int peer) {
        return peer != rank && (step.peer == everyone || step.peer == peer);
    }
    /// The posts of a peer before the operation in which this rank is.
    [[nodiscard]] std::uint32_t posts_of(int peer, int rank) const {
        return ranks_[index(peer)].posts_each * ranks_[index(rank)].operation;
    }
    /// A rank that the step awaits and that has not posted; -1: none.
    [[nodiscard]] int lacking(int rank, const Step& step) const {
        for (int peer = 0; peer < program_.world; ++peer)
            if (awaits(step, rank, peer) && ranks_[index(peer)].posts <= posts_of(peer, rank) + step.part) return peer;
        return -1;
    }
    void hear(int rank, int other, std::uint32_t posts) {
        std::uint32_t& known = ranks_[index(rank)].known[index(other)];
        known = std::max(known, posts);
        if (words_ != 0) heard_[index(rank) * words_ + index(other) / 64] |= std::uint64_t{1} << (index(other) % 64);
    }

    void copy(int rank, const Step& step) {
        const int owner = step.kind == StepKind::copy ? rank : step.peer;
        if (!check_range(owner, step.source, false) || !check_range(rank, step.target, true)) return;
        const bool itself =
            owner == rank && in_place_ && step.source.where != Buffer::posted && step.source.first == step.target.first;
        if (itself) return;
        for (std::uint32_t i = 0; i < step.source.count; ++i) {
            const Value value = read(rank, owner, step.source, i);
            write(rank, rank, step.target.where, step.target.first + i, value);
        }
    }

    void combine(int rank, const Step& step) {
        if (!check_range(everyone, step.source, false) || !check_range(step.peer, step.target, true)) return;
        for (std::uint32_t i = 0; i < step.source.count; ++i) {
            Value sum = read(rank, 0, step.source, i);
            for (int from = 1; from < program_.world; ++from) {
                const Value value = read(rank, from, step.source, i);
                if (sum.who == 0 || value.who == 0) continue; // reported already
                if (value.block != sum.block)
                    fail(concat({"combines ", describe_value(sum), " with ", describe_value(value)}));
                bool twice = false;
                sum.who = sets_.merge(sum.who, value.who, twice);
                if (twice) fail(concat({"a contribution to block ", step.source.first + i, " counts twice"}));
            }
            const int first = step.peer == everyone ? 0 : step.peer;
            const int last = step.peer == everyone ? program_.world : step.peer + 1;
            for (int owner = first; owner < last; ++owner)
                write(rank, owner, step.target.where, step.target.first + i, sum);
        }
        Rank& state = ranks_[index(rank)];
        if (state.operation == 0)
            state.cost.blocks_combined += step.source.count * static_cast<std::uint64_t>(program_.world - 1);
    }

    void explain_deadlock() {
        for (int rank = 0; rank < program_.world; ++rank) {
            const Rank& state = ranks_[index(rank)];
            if (state.operation == operations) continue;
            const Step& step = state.steps[state.step];
            const int other = step.kind == StepKind::await ? lacking(rank, step) : -1;
            if (other < 0) continue;
            const std::uint32_t made = ranks_[index(other)].posts, before = posts_of(other, rank);
            return report_.add(concat({"deadlock: rank ", rank, " awaits ", step.part + 1, " posts in round ",
                                       state.round, ", rank ", other, " makes ", made < before ? 0 : made - before}));
        }
    }

    const Program& program_;
    Report& report_;
    Journal journal_;
    bool in_place_;
    std::uint32_t blocks_;
    ContributionSets sets_;
    std::vector<Rank> ranks_;
    std::vector<Cell> input_, output_, posted_;
    std::size_t words_ = 0;
    std::vector<std::uint64_t> heard_;
};

} // namespace schedule::detail

UNISONO_NAMESPACE_END

#pragma once

/// \file
/// The proof for schedules over messages: the rounds of all ranks run side by side on symbolic
/// values. Every other order gives the same result: a message is named by its round and part, and
/// no step of a round touches memory that another one receives into (both are checked), so the
/// contents of each rank's memory after a round depend on nothing else. If every receive of a round
/// has a send in the same round, then by induction over rounds no rank waits for ever, even if a
/// send completes only with its receive.

#include "unisono/core/text.hpp"
#include "unisono/extensions/laboratory/verify/contributions.hpp"

UNISONO_NAMESPACE_BEGIN

namespace schedule::detail {

class MessageProof {
public:
    MessageProof(const Program& program, bool in_place, Report& report)
        : program_(program), report_(report), journal_{report, {}}, memory_(program, in_place, journal_),
          sets_(program.world), costs_(program.ranks.size()), heads_(program.ranks.size(), none),
          by_peer_(program.ranks.size(), none) {
        if (program.collective == Collective::barrier) {
            words_ = (program.ranks.size() + 63) / 64;
            heard_.resize(program.ranks.size() * words_);
            for (std::size_t rank = 0; rank < program.ranks.size(); ++rank)
                heard_[rank * words_ + rank / 64] |= std::uint64_t{1} << (rank % 64);
        }
    }

    void run() {
        const std::uint32_t rounds = program_.most_rounds();
        for (round_ = 0; round_ < rounds && !report_.full(); ++round_) {
            messages_.clear();
            values_.clear();
            heard_before_ = heard_;
            for (int rank = 0; rank < program_.world; ++rank)
                if (round_ < program_.at(rank).rounds) start_round(rank);
            for (int rank = 0; rank < program_.world; ++rank) finish_round(rank);
        }
        if (report_.full()) return;
        check_results();
        for (int rank = 0; rank < program_.world; ++rank) compare_cost(program_, rank, costs_[index(rank)], report_);
    }

private:
    static constexpr std::uint32_t none = ~0u;
    struct Message {
        int from = 0, to = 0;
        std::uint32_t first = 0, count = 0;
        std::size_t values = 0;
        std::uint32_t next = none;         ///< the next message to the same rank
        std::uint32_t next_of_peer = none; ///< the next message between the same two ranks
        std::uint8_t part = 0;
        bool taken = false;
    };

    static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
    static bool receives(const Step& step) {
        return step.kind == StepKind::receive || step.kind == StepKind::receive_combine;
    }
    using Cell = SymbolicMemory::Cell;
    void fail(const std::string& text) { journal_.fail(text); }
    Cell& cell(int rank, const Blocks& range, std::uint32_t i) { return memory_.cell(rank, range, i); }

    bool check_step(int rank, const Step& step, bool say) {
        const auto refuse = [&](const std::string& text) {
            if (say) fail(text);
            return false;
        };
        switch (step.kind) {
        case StepKind::send:
        case StepKind::receive:
        case StepKind::receive_combine:
            if (step.peer < 0 || step.peer >= program_.world) return refuse("there is no such rank");
            if (step.peer == rank) return refuse("a message to itself");
            break;
        case StepKind::copy: break;
        case StepKind::combine_ranks:
            if (step.source.count != 1 || step.source.where == Buffer::scratch)
                return refuse("expected one block, and this rank's own block outside scratch");
            if (step.source.slot + static_cast<std::uint32_t>(program_.world) - 1 > program_.at(rank).scratch_slots)
                return refuse(concat({"needs ", program_.world - 1, " scratch slots"}));
            break;
        default: return refuse("mapped steps in a schedule that is not mapped");
        }
        const bool reads = step.kind != StepKind::receive, writes = step.kind != StepKind::send;
        if (reads && !memory_.check_range(rank, step.source, false, say)) return false;
        if (writes && !memory_.check_range(rank, step.target, true, say)) return false;
        if (reads && writes && (step.source.count != step.target.count || step.source.first != step.target.first))
            return refuse("source and target are different blocks");
        return true;
    }

    Value combine(const Value& a, const Value& b) {
        if (a.who == 0 || b.who == 0) return {};
        if (a.block != b.block) {
            fail(concat({"combines block ", a.block, " with block ", b.block}));
            return {};
        }
        bool twice = false;
        const auto who = sets_.merge(a.who, b.who, twice);
        if (twice)
            fail(concat(
                {"the contribution of ", sets_.describe_common(a.who, b.who), " to block ", a.block, " counts twice"}));
        return {a.block, who};
    }

    // --- A round ---

    void start_round(int rank) {
        program_.steps_of(rank, round_, steps_);
        memory_.begin_round(++stamp_);
        Cost& cost = costs_[index(rank)];
        bool waits = false, runs = false;
        for (std::size_t i = 0; i < steps_.size(); ++i) {
            journal_.place = {rank, round_, i, &steps_[i]};
            const Step& step = steps_[i];
            for (const Blocks* range : {&step.source, &step.target})
                runs |= range->where == Buffer::scratch && range->ahead + range->count > 1;
            if (!receives(step) || !check_step(rank, step, false)) continue;
            for (std::uint32_t k = 0; k < step.target.count; ++k) {
                Cell& target = cell(rank, step.target, k);
                if (memory_.is_received(target)) fail("two steps of the round receive into this block");
                target.received = stamp_;
            }
        }
        if (runs) check_runs(rank);
        bool locals_done = false;
        for (std::size_t i = 0; i < steps_.size(); ++i) {
            const Step& step = steps_[i];
            journal_.place = {rank, round_, i, &step};
            ++report_.steps;
            const bool local = step.kind == StepKind::copy || step.kind == StepKind::combine_ranks;
            if (local && locals_done) fail("local steps come before the messages of their round");
            locals_done |= !local;
            waits |= !local;
            if (!check_step(rank, step, true)) continue;
            switch (step.kind) {
            case StepKind::send: start_send(rank, step, cost); break;
            case StepKind::receive_combine:
                for (std::uint32_t k = 0; k < step.source.count; ++k)
                    memory_.read(cell(rank, step.source, k), step.source, k, &cell(rank, step.target, k));
                cost.blocks_combined += step.source.count;
                break;
            case StepKind::copy: copy(rank, step); break;
            case StepKind::combine_ranks:
                combine_ranks(rank, step);
                cost.blocks_combined += static_cast<std::uint64_t>(program_.world - 1);
                break;
            default: break;
            }
        }
        cost.rounds += waits ? 1 : 0;
    }

    /// Scratch runs are packed: two runs that begin differently may share bytes even if they share
    /// no slot number.
    void check_runs(int rank) {
        for (const Step& one : steps_) {
            if (!receives(one) || one.target.where != Buffer::scratch) continue;
            for (const Step& other : steps_) {
                for (const Blocks* range : {&other.source, &other.target}) {
                    if (range->where != Buffer::scratch || range == &one.target || range->count == 0) continue;
                    const Blocks& target = one.target;
                    if (range->slot == target.slot && range->first - range->ahead == target.first - target.ahead)
                        continue;
                    if (range->slot < target.slot + target.ahead + target.count &&
                        target.slot < range->slot + range->ahead + range->count)
                        report_.add(
                            concat({Place{rank, round_, 0, nullptr}.text(), describe(*range), " may share memory with ",
                                    describe(target), ", which another step of the round receives"}));
                }
            }
        }
    }

    void start_send(int rank, const Step& step, Cost& cost) {
        Message message{.from = rank,
                        .to = step.peer,
                        .first = step.source.first,
                        .count = step.source.count,
                        .values = values_.size(),
                        .next = heads_[index(step.peer)],
                        .part = step.part};
        for (std::uint32_t k = 0; k < step.source.count; ++k)
            values_.push_back(memory_.read(cell(rank, step.source, k), step.source, k));
        heads_[index(step.peer)] = static_cast<std::uint32_t>(messages_.size());
        messages_.push_back(message);
        ++cost.messages;
        cost.blocks_sent += step.source.count;
    }

    void copy(int rank, const Step& step) {
        copied_.clear();
        for (std::uint32_t k = 0; k < step.source.count; ++k) {
            const Cell &source = cell(rank, step.source, k), &target = cell(rank, step.target, k);
            copied_.push_back(&source == &target ? source.value : memory_.read(source, step.source, k));
            if (memory_.is_received(target)) fail("writes a block into which another step of the round receives");
        }
        memory_.overwrite(rank, step.target);
        for (std::uint32_t k = 0; k < step.source.count; ++k)
            memory_.write(cell(rank, step.target, k), step.target, copied_[k]);
    }

    void combine_ranks(int rank, const Step& step) {
        const std::uint32_t block = step.source.first;
        Value sum;
        for (int from = 0; from < program_.world; ++from) {
            const Blocks slot =
                scratch_blocks(block, 1, step.source.slot + static_cast<std::uint32_t>(from < rank ? from : from - 1));
            const Blocks& source = from == rank ? step.source : slot;
            const Value value = memory_.read(cell(rank, source, 0), source, 0);
            sum = from == 0 ? value : combine(sum, value);
        }
        memory_.overwrite(rank, step.target);
        Cell& target = cell(rank, step.target, 0);
        if (memory_.is_received(target)) fail("writes a block into which another step of the round receives");
        memory_.write(target, step.target, sum);
    }

    void finish_round(int rank) {
        sent_.clear();
        for (std::uint32_t at = heads_[index(rank)]; at != none; at = messages_[at].next) sent_.push_back(at);
        heads_[index(rank)] = none;
        for (const std::uint32_t at : sent_) { // newest first, so that each peer's chain is oldest first
            messages_[at].next_of_peer = by_peer_[index(messages_[at].from)];
            by_peer_[index(messages_[at].from)] = at;
        }
        if (round_ < program_.at(rank).rounds) {
            program_.steps_of(rank, round_, steps_);
            for (std::size_t i = 0; i < steps_.size(); ++i) {
                if (!receives(steps_[i]) || !check_step(rank, steps_[i], false)) continue;
                journal_.place = {rank, round_, i, &steps_[i]};
                finish_receive(rank, steps_[i]);
            }
        }
        for (const std::uint32_t at : sent_) {
            const Message& message = messages_[at];
            by_peer_[index(message.from)] = none;
            if (!message.taken)
                report_.add(
                    concat({"rank ", message.from, ", round ", round_, ": its message to rank ", rank, " (part ",
                            message.part, ") is never received: the round does not end, a deadlock"}));
        }
    }

    void finish_receive(int rank, const Step& step) {
        bool overtakes = false;
        std::uint32_t at = by_peer_[index(step.peer)];
        while (at != none && (messages_[at].part != step.part || messages_[at].taken)) {
            overtakes |= !messages_[at].taken;
            at = messages_[at].next_of_peer;
        }
        if (at == none) return fail(explain_missing(rank, step));
        Message& message = messages_[at];
        message.taken = true;
        for (auto later = message.next_of_peer; later != none; later = messages_[later].next_of_peer)
            if (messages_[later].part == step.part) fail("two messages of the round have the same part");
        if (overtakes) fail("the parts of a round are received in another order than they are sent");
        const bool numbers_match =
            program_.collective == Collective::all_to_all
                ? message.count != 1 || (message.first == static_cast<std::uint32_t>(rank) &&
                                         step.target.first == static_cast<std::uint32_t>(step.peer))
                : message.first == step.target.first;
        if (message.count != step.target.count || !numbers_match)
            return fail(concat({"receives [", describe_numbers(step.target.first, step.target.count), "] but rank ",
                                step.peer, " sends [", describe_numbers(message.first, message.count), "]"}));
        if (step.kind == StepKind::receive_combine) {
            for (std::uint32_t k = 0; k < message.count; ++k) {
                Value& value = values_[message.values + k];
                value = combine(value, cell(rank, step.source, k).value);
            }
        }
        memory_.overwrite(rank, step.target);
        for (std::uint32_t k = 0; k < message.count; ++k)
            memory_.write(cell(rank, step.target, k), step.target, values_[message.values + k]);
        for (std::size_t word = 0; word < words_; ++word)
            heard_[index(rank) * words_ + word] |= heard_before_[index(step.peer) * words_ + word];
    }

    std::string explain_missing(int rank, const Step& step) const {
        std::string text =
            concat({"waits for ever, a deadlock: rank ", step.peer, " sends it no such message in this round"});
        std::vector<Step> steps;
        for (std::uint32_t round = 0; round < program_.at(step.peer).rounds; ++round) {
            program_.steps_of(step.peer, round, steps);
            for (const Step& other : steps)
                if (round != round_ && other.kind == StepKind::send && other.peer == rank)
                    return concat({text, ", but in round ", round});
        }
        return text;
    }

    // --- The end ---

    void check_results() {
        const Expected expected{program_.collective, program_.root};
        for (int rank = 0; rank < program_.world && !report_.full(); ++rank) {
            for (std::uint32_t block = 0; block < program_.blocks; ++block) {
                if (!program_.has_output(rank, block)) continue;
                const Value& found = memory_.cell(rank, Buffer::output, block).value;
                const Value wanted = expected(sets_, rank, block);
                if (found == wanted) continue;
                report_.add(concat(
                    {"rank ", rank, ": ", describe_difference(sets_, concat({"output[", block, "]"}), found, wanted)}));
            }
            if (words_ != 0) check_heard(rank);
        }
    }

    void check_heard(int rank) {
        for (int other = 0; other < program_.world; ++other)
            if (((heard_[index(rank) * words_ + index(other) / 64] >> (index(other) % 64)) & 1u) == 0)
                report_.add(concat({"rank ", rank, " leaves without having heard from rank ", other}));
    }

    const Program& program_;
    Report& report_;
    Journal journal_;
    SymbolicMemory memory_;
    ContributionSets sets_;
    std::vector<Cost> costs_;
    std::size_t words_ = 0;
    std::vector<std::uint64_t> heard_, heard_before_; ///< barrier: the ranks that each rank knows to have arrived
    std::vector<Message> messages_;
    std::vector<Value> values_, copied_;
    std::vector<std::uint32_t> heads_, by_peer_, sent_;
    std::vector<Step> steps_;
    std::uint32_t round_ = 0, stamp_ = 0;
};

} // namespace schedule::detail

UNISONO_NAMESPACE_END

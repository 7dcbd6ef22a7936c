// A small second executor for schedules, on numbers and blocks of uneven sizes. It shares no code
// with the verifier or the library's executor. Ranks take turns in a random order. Messages lie in
// a mailbox.
#pragma once

#include "unisono/schedule/schedule.hpp"

#include <cstdint>
#include <map>
#include <random>
#include <stdexcept>
#include <tuple>
#include <vector>

namespace unisono_test {

using Number = std::int64_t;
using Vector = std::vector<Number>;

/// The schedule of one rank, as a list of steps.
struct Written {
    std::vector<std::vector<unisono::schedule::Step>> rounds = {};
    std::uint32_t scratch_slots = 0;
};

template <class Schedule>
Written write_out(const Schedule& schedule) {
    Written written;
    written.scratch_slots = schedule.scratch_slots();
    for (std::uint32_t r = 0; r < schedule.rounds(); ++r) {
        written.rounds.emplace_back();
        schedule.round(r, [&](const unisono::schedule::Step& step) { written.rounds.back().push_back(step); });
    }
    return written;
}

class Interpreter {
public:
    using Blocks = unisono::schedule::Blocks;
    using Step = unisono::schedule::Step;
    using Kind = unisono::schedule::StepKind;
    using Where = unisono::schedule::Buffer;

    /// inputs[rank] and outputs[rank] are whole vectors of all blocks. In place, the inputs are not
    /// used.
    Interpreter(std::vector<Written> schedules, std::vector<std::size_t> sizes, std::vector<Vector>& inputs,
                std::vector<Vector>& outputs, bool in_place, unsigned seed)
        : schedules_(std::move(schedules)), sizes_(std::move(sizes)), inputs_(inputs), outputs_(outputs),
          in_place_(in_place), random_(seed), ranks_(schedules_.size()) {
        for (std::size_t b = 0; b < sizes_.size(); ++b) {
            starts_.push_back(total_);
            total_ += sizes_[b];
            largest_ = sizes_[b] > largest_ ? sizes_[b] : largest_;
        }
        starts_.push_back(total_);
        for (std::size_t r = 0; r < ranks_.size(); ++r)
            ranks_[r].scratch.assign(schedules_[r].scratch_slots * largest_, poison);
    }

    /// Runs to the end. Throws if no rank can continue.
    void run() {
        for (std::size_t left = ranks_.size(), idle = 0; left != 0;) {
            const std::size_t r = random_() % ranks_.size();
            bool moved = false;
            if (!ranks_[r].done) moved = advance(r);
            if (moved && ranks_[r].done) --left;
            idle = moved ? 0 : idle + 1;
            if (idle > 200 * ranks_.size()) throw std::runtime_error("the schedule is stuck");
        }
    }

    static constexpr Number poison = -1'000'000'007;

private:
    struct Rank {
        std::uint32_t round = 0;
        std::size_t posts = 0;
        std::size_t mapped_step = 0;
        bool posted = false, done = false;
        Vector scratch;
        Vector copy; ///< beside its flag
        std::vector<Step> waiting;
    };
    using Key = std::tuple<std::size_t, std::size_t, std::uint32_t, int>;

    std::size_t bytes(const Blocks& range) const { return starts_[range.first + range.count] - starts_[range.first]; }

    Number* at(std::size_t r, const Blocks& range) {
        switch (range.where) {
        case Where::input: return (in_place_ ? outputs_ : inputs_)[r].data() + starts_[range.first];
        case Where::output: return outputs_[r].data() + starts_[range.first];
        case Where::scratch:
            return ranks_[r].scratch.data() + range.slot * largest_ +
                   (starts_[range.first] - starts_[range.first - range.ahead]);
        default: throw std::logic_error("no such memory");
        }
    }
    Vector read(std::size_t r, const Blocks& range) {
        const Number* from = at(r, range);
        return Vector(from, from + bytes(range));
    }
    void write(std::size_t r, const Blocks& range, const Vector& values) {
        if (values.size() != bytes(range)) throw std::runtime_error("sizes differ");
        Number* to = at(r, range);
        for (std::size_t i = 0; i < values.size(); ++i) to[i] = values[i];
    }
    static void add(Vector& sum, const Vector& more) {
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += more[i];
    }
    Vector read_peer(std::size_t owner, const Blocks& range) {
        if (range.where != Where::posted) return read(owner, range);
        const Vector& copy = ranks_[owner].copy;
        const auto begin =
            copy.begin() + static_cast<std::ptrdiff_t>(starts_[range.first] - starts_[range.first - range.ahead]);
        return Vector(begin, begin + static_cast<std::ptrdiff_t>(bytes(range)));
    }

    bool advance(std::size_t r) {
        Rank& rank = ranks_[r];
        if (rank.round == schedules_[r].rounds.size()) return rank.done = true;
        const std::vector<Step>& steps = schedules_[r].rounds[rank.round];
        bool moved = false;
        if (!rank.posted) {
            rank.posted = moved = true;
            rank.waiting.clear();
            for (const Step& step : steps) start(r, step);
        }
        for (std::size_t i = 0; i < rank.waiting.size();) {
            if (!try_finish(r, rank.waiting[i])) {
                ++i;
                continue;
            }
            rank.waiting.erase(rank.waiting.begin() + static_cast<std::ptrdiff_t>(i));
            moved = true;
        }
        if (!rank.waiting.empty()) return moved;
        rank.posted = false;
        ++rank.round;
        return true;
    }

    void start(std::size_t r, const Step& step) {
        Rank& rank = ranks_[r];
        switch (step.kind) {
        case Kind::send:
            mail_[Key{r, static_cast<std::size_t>(step.peer), rank.round, step.part}] = read(r, step.source);
            break;
        case Kind::receive:
        case Kind::receive_combine:
        case Kind::await: rank.waiting.push_back(step); break;
        case Kind::copy: write(r, step.target, read(r, step.source)); break;
        case Kind::combine_ranks: {
            Vector sum = read(r, step.source);
            for (std::uint32_t slot = 0; slot + 1 < ranks_.size(); ++slot)
                add(sum, read(r, {Where::scratch, step.source.first, 1, step.source.slot + slot, 0}));
            write(r, step.target, sum);
            break;
        }
        case Kind::post:
            ++rank.posts;
            if (step.source.count != 0) rank.copy = read(r, step.source);
            break;
        case Kind::combine_peers: {
            Vector sum = read_peer(0, step.source);
            for (std::size_t from = 1; from < ranks_.size(); ++from) add(sum, read_peer(from, step.source));
            for (std::size_t to = 0; to < ranks_.size(); ++to)
                if (step.peer < 0 || static_cast<std::size_t>(step.peer) == to) write(to, step.target, sum);
            break;
        }
        case Kind::copy_from_peer:
            write(r, step.target, read_peer(static_cast<std::size_t>(step.peer), step.source));
            break;
        }
    }

    bool try_finish(std::size_t r, const Step& step) {
        if (step.kind == Kind::await) {
            for (std::size_t other = 0; other < ranks_.size(); ++other)
                if (other != r && (step.peer < 0 || static_cast<std::size_t>(step.peer) == other) &&
                    ranks_[other].posts <= step.part)
                    return false;
            return true;
        }
        const auto found = mail_.find(Key{static_cast<std::size_t>(step.peer), r, ranks_[r].round, step.part});
        if (found == mail_.end()) return false;
        if (step.kind == Kind::receive_combine) add(found->second, read(r, step.source));
        write(r, step.target, found->second);
        mail_.erase(found);
        return true;
    }

    std::vector<Written> schedules_;
    std::vector<std::size_t> sizes_, starts_;
    std::vector<Vector>& inputs_;
    std::vector<Vector>& outputs_;
    bool in_place_;
    std::mt19937 random_;
    std::vector<Rank> ranks_;
    std::size_t total_ = 0, largest_ = 0;
    std::map<Key, Vector> mail_;
};

} // namespace unisono_test

// Shared by the campaigns of random collectives: cases, several in flight, on worlds and parts of
// them, compared with what each rank can compute by itself. Cases are in place or not, at odd
// addresses, by every family, with individual counts. Also overlaps that are refused, and
// operations that throw.
#pragma once

#include "findings.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

namespace campaign {

namespace un = unisono;
using test::Group;

using Random = std::mt19937_64;
using Counts = std::vector<std::size_t>;

inline std::size_t from_environment(const char* name, std::size_t otherwise) {
    const char* const text = std::getenv(name);
    return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

/// Ends the process with a message unless it is destroyed in time. Uses no thread, so that ranks
/// can be forked.
class Watchdog {
public:
    Watchdog(const char* what, unsigned seconds) {
        guarded() = what;
        before_ = std::signal(SIGALRM, [](int) {
            for (const char* part : {"watchdog: no end of ", guarded(), "\n"})
                if (::write(STDERR_FILENO, part, std::strlen(part)) < 0) break;
            ::_exit(99);
        });
        ::alarm(seconds);
    }
    Watchdog(const Watchdog&) = delete;
    Watchdog& operator=(const Watchdog&) = delete;
    ~Watchdog() {
        ::alarm(0);
        static_cast<void>(std::signal(SIGALRM, before_));
    }

private:
    static const char*& guarded() {
        static const char* what = "";
        return what;
    }
    void (*before_)(int) = nullptr;
};

// These are called for millions of elements, in builds without optimisation.
[[gnu::always_inline]] inline std::uint64_t mixed(std::uint64_t a, std::uint64_t b) {
    a = (a ^ (b + 0x9e3779b97f4a7c15u + (a << 6) + (a >> 2))) * 0xbf58476d1ce4e5b9u;
    return a ^ (a >> 31);
}

/// The elements that rank `rank` of a group gives in a case: integers whose sums are exact.
template <class T>
[[gnu::always_inline]] inline T given(std::uint64_t number, int rank, std::size_t i) {
    return static_cast<T>(mixed(number * 64 + static_cast<std::uint64_t>(rank), i) % 7);
}
/// The value where nothing may be written.
template <class T>
T untouched(std::size_t i) {
    return static_cast<T>(100 + i % 23);
}

enum class Kind { all_reduce, reduce_scatter, all_gather, broadcast, reduce, gather, scatter, all_to_all, message };
inline constexpr std::uint64_t kinds = 9;

/// A case, the same on all ranks of a group.
struct Case {
    std::uint64_t number = 0;
    Kind kind = Kind::all_reduce;
    std::size_t count = 0;   ///< of the vector, or of each block
    bool own_counts = false; ///< of each block, random
    bool in_place = false;
    bool alone = false; ///< by the blocking call
    int root = 0;
    int family = 0;
    int operation = 0;
    std::size_t input_shift = 0; ///< elements from the beginning of an aligned buffer
    std::size_t output_shift = 0;

    [[nodiscard]] std::string text() const {
        return "case " + std::to_string(number) + " kind " + std::to_string(static_cast<int>(kind)) + " count " +
               std::to_string(count) + (own_counts ? " own counts" : "") + (in_place ? " in place" : "") +
               (alone ? " alone" : "") + " root " + std::to_string(root) + " family " + std::to_string(family) +
               " operation " + std::to_string(operation);
    }
};

inline Case draw(Random& same, std::uint64_t number) {
    constexpr std::size_t counts[] = {0,  1,  2,   3,   5,   7,   16,  31,   63,   64,   65,   73,
                                      74, 75, 147, 148, 149, 211, 997, 1024, 2053, 4099, 10007};
    Case one;
    one.number = number;
    one.kind = static_cast<Kind>(same() % kinds);
    one.count = counts[same() % std::size(counts)];
    if (same() % 64 == 0) one.count = 60'013 + same() % 100'000;
    one.own_counts = same() % 3 == 0;
    one.in_place = same() % 2 == 0;
    one.alone = same() % 2 == 0;
    one.root = static_cast<int>(same() % 64);
    one.family = static_cast<int>(same() % 6);
    one.operation = static_cast<int>(same() % 3);
    one.input_shift = same() % 4;
    one.output_shift = same() % 4;
    return one;
}

/// A user's operation, which throws on one rank if requested.
template <class T>
struct Larger {
    const std::string* complaint = nullptr;
    std::atomic<bool>* complained = nullptr;
    T operator()(T a, T b) const {
        if (complaint != nullptr && complained != nullptr) complained->store(true);
        if (complaint != nullptr) throw std::out_of_range(*complaint);
        return a < b ? b : a;
    }
};

template <un::Collective What, class Use>
auto by_family(int which, Use use) {
    const auto offered = [&](const auto& family) {
        if constexpr (un::schedule::offers<std::remove_cvref_t<decltype(family)>, What>) return use(family);
        else return use(un::NativeSchedule{});
    };
    if (which == 0) return offered(un::RingSchedule{.chunk_bytes = 1024});
    if (which == 1) return offered(un::DirectSchedule{.chunk_bytes = 512});
    if (which == 2) return offered(un::TreeSchedule{});
    return offered(un::NativeSchedule{});
}

/// One case on one rank: its memory, its handle and the expected result.
template <class T>
class Flight {
public:
    Flight(Group& group, const Case& of, const std::string* complaint = nullptr)
        : case_(of), ranks_(static_cast<std::size_t>(group.size())), me_(group.rank()), root_(of.root % group.size()),
          complaint_(complaint) {
        Random same(of.number);
        blocks_.assign(ranks_, of.count);
        if (of.own_counts)
            for (std::size_t& block : blocks_) block = same() % 3 == 0 ? 0 : same() % (of.count + 1);
        begin(group, same);
    }
    Flight(const Flight&) = delete;
    Flight& operator=(const Flight&) = delete;

    [[nodiscard]] bool poll() { return handle_.poll(); }
    void wait() { handle_.wait(); }
    /// Returns an empty string, or what is wrong.
    [[nodiscard]] std::string wrong() const {
        if (out_ == expected_out_ && in_ == expected_in_) return {};
        return case_.text() + " on rank " + std::to_string(me_) + " of " + std::to_string(ranks_) +
               (out_ == expected_out_ ? " (the input)" : "");
    }

private:
    static constexpr std::size_t guard = 5;

    [[nodiscard]] std::size_t before(const Counts& counts, int rank) const {
        return std::accumulate(counts.begin(), counts.begin() + rank, std::size_t{0});
    }
    [[nodiscard]] std::size_t sum(const Counts& counts) const { return before(counts, static_cast<int>(ranks_)); }
    [[nodiscard, gnu::always_inline]] T give(int rank, std::size_t i) const { return given<T>(case_.number, rank, i); }
    [[nodiscard, gnu::always_inline]] T reduced(std::size_t i) const {
        T result = give(0, i);
        for (int rank = 1; rank < static_cast<int>(ranks_); ++rank) {
            const T other = give(rank, i);
            if (case_.operation == 0) result = static_cast<T>(result + other);
            else result = std::max(result, other);
        }
        return result;
    }

    /// Memory for `count` elements between guards that no rank may touch.
    static void lay(std::vector<T>& memory, std::size_t shift, std::size_t count) {
        memory.resize(shift + count + guard);
        for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = untouched<T>(i);
    }

    /// Places input and output. `own` is where in the larger one the smaller one may lie.
    void lay(std::size_t input, std::size_t output, std::size_t own, bool may_be_in_place) {
        const bool in_place = case_.in_place && may_be_in_place;
        if (!in_place) {
            lay(in_, case_.input_shift, input);
            lay(out_, case_.output_shift, output);
            input_ = {in_.data() + case_.input_shift, input};
            output_ = {out_.data() + case_.output_shift, output};
        } else {
            lay(out_, case_.output_shift, std::max(input, output));
            T* const all = out_.data() + case_.output_shift;
            input_ = {all + (input < output ? own : 0), input};
            output_ = {all + (input < output ? 0 : own), output};
        }
        for (std::size_t i = 0; i < input; ++i) input_[i] = give(me_, i);
    }
    /// Sets the expected output. Everything else stays as it is.
    template <class Value>
    void expect(Value value) {
        expected_in_ = in_;
        expected_out_ = out_;
        T* const to = expected_out_.data() + (output_.data() - out_.data());
        for (std::size_t i = 0; i < output_.size(); ++i) to[i] = value(i);
    }
    void expect_nothing() {
        expected_in_ = in_;
        expected_out_ = out_;
    }
    [[nodiscard]] std::size_t block_of(const Counts& counts, std::size_t i, std::size_t& within) const {
        std::size_t block = 0;
        while (i >= counts[block]) i -= counts[block++];
        within = i;
        return block;
    }

    template <class Run>
    void with_operation(Run run) {
        if (case_.operation == 0) run(un::Sum{});
        else if (case_.operation == 1 && complaint_ == nullptr) run(un::Max{});
        else run(Larger<T>{complaint_ == nullptr || complaint_->empty() ? nullptr : complaint_});
    }

    void begin(Group& group, Random& same) {
        const std::span<const std::size_t> counts = case_.own_counts ? std::span<const std::size_t>(blocks_) : Counts();
        const bool root = me_ == root_;
        const auto own = static_cast<std::size_t>(me_);
        switch (case_.kind) {
        case Kind::all_reduce: {
            lay(case_.count, case_.count, 0, true);
            expect([&](std::size_t i) { return reduced(i); });
            with_operation([&](const auto& op) {
                const std::span<const T> in(input_);
                if (case_.alone && case_.family > 2) un::all_reduce(group, in, output_, op);
                else
                    handle_ = by_family<un::Collective::all_reduce>(case_.family, [&](const auto& family) {
                        return un::start_all_reduce(group, in, output_, op, family);
                    });
            });
            break;
        }
        case Kind::reduce_scatter: {
            const std::size_t at = before(blocks_, me_);
            lay(sum(blocks_), blocks_[own], at, true);
            expect([&](std::size_t i) { return reduced(at + i); });
            with_operation([&](const auto& op) {
                const std::span<const T> in(input_);
                if (case_.alone && case_.family > 2) un::reduce_scatter(group, in, output_, op, counts);
                else
                    handle_ = by_family<un::Collective::reduce_scatter>(case_.family, [&](const auto& family) {
                        return un::start_reduce_scatter(group, in, output_, op, counts, family);
                    });
            });
            break;
        }
        case Kind::all_gather: {
            lay(blocks_[own], sum(blocks_), before(blocks_, me_), true);
            expect_gathered();
            const std::span<const T> in(input_);
            if (case_.alone && case_.family > 2) un::all_gather(group, in, output_, counts);
            else
                handle_ = by_family<un::Collective::all_gather>(case_.family, [&](const auto& family) {
                    return un::start_all_gather(group, in, output_, counts, family);
                });
            break;
        }
        case Kind::broadcast: {
            lay(0, case_.count, 0, false);
            for (std::size_t i = 0; i < case_.count; ++i) output_[i] = give(me_, i);
            expect([&](std::size_t i) { return give(root_, i); });
            if (case_.alone && case_.family > 2) un::broadcast(group, output_, root_);
            else
                handle_ = by_family<un::Collective::broadcast>(case_.family, [&](const auto& family) {
                    return un::start_broadcast(group, output_, root_, family);
                });
            break;
        }
        case Kind::reduce: {
            lay(case_.count, root ? case_.count : 0, 0, root);
            expect([&](std::size_t i) { return reduced(i); });
            with_operation([&](const auto& op) {
                const std::span<const T> in(input_);
                if (case_.alone && case_.family > 2) un::reduce(group, in, output_, root_, op);
                else
                    handle_ = by_family<un::Collective::reduce>(case_.family, [&](const auto& family) {
                        return un::start_reduce(group, in, output_, root_, op, family);
                    });
            });
            break;
        }
        case Kind::gather: {
            lay(blocks_[own], root ? sum(blocks_) : 0, before(blocks_, me_), root);
            if (root) expect_gathered();
            else expect_nothing();
            const std::span<const T> in(input_);
            if (case_.alone) un::gather(group, in, output_, root_, counts);
            else
                handle_ = by_family<un::Collective::gather>(case_.family, [&](const auto& family) {
                    return un::start_gather(group, in, output_, root_, counts, family);
                });
            break;
        }
        case Kind::scatter: {
            const std::size_t at = before(blocks_, me_);
            lay(root ? sum(blocks_) : 0, blocks_[own], at, root);
            expect([&](std::size_t i) { return give(root_, at + i); });
            const std::span<const T> in(input_);
            if (case_.alone) un::scatter(group, in, output_, root_, counts);
            else
                handle_ = by_family<un::Collective::scatter>(case_.family, [&](const auto& family) {
                    return un::start_scatter(group, in, output_, root_, counts, family);
                });
            break;
        }
        case Kind::all_to_all: {
            std::vector<Counts> sent(ranks_, Counts(ranks_, case_.count)); // [from][to]
            if (case_.own_counts)
                for (Counts& row : sent)
                    for (std::size_t& block : row) block = same() % 3 == 0 ? 0 : same() % (case_.count + 1);
            blocks_ = sent[own];
            received_.resize(ranks_);
            for (std::size_t from = 0; from < ranks_; ++from) received_[from] = sent[from][own];
            lay(sum(blocks_), sum(received_), 0, false);
            expect([&](std::size_t i) {
                std::size_t within = 0;
                const std::size_t from = block_of(received_, i, within);
                return give(static_cast<int>(from), before(sent[from], me_) + within);
            });
            const std::span<const std::size_t> to = case_.own_counts ? std::span<const std::size_t>(blocks_) : Counts();
            const std::span<const std::size_t> of =
                case_.own_counts ? std::span<const std::size_t>(received_) : Counts();
            const std::span<const T> in(input_);
            if (case_.alone && case_.family > 2) un::all_to_all(group, in, output_, to, of);
            else
                handle_ = by_family<un::Collective::all_to_all>(case_.family, [&](const auto& family) {
                    return un::start_all_to_all(group, in, output_, to, of, family);
                });
            break;
        }
        case Kind::message: {
            const bool talks = ranks_ > 1;
            const int ranks = static_cast<int>(ranks_);
            const int previous = (me_ + ranks - 1) % ranks;
            lay(talks ? case_.count : 0, talks ? case_.count : 0, 0, false);
            expect([&](std::size_t i) { return give(previous, i); });
            if (!talks) break;
            const int tag = static_cast<int>(case_.number % 3);
            handle_ = un::start_receive(group, output_, previous, tag);
            other_handle_ = un::start_send(group, std::span<const T>(input_), (me_ + 1) % ranks, tag);
            break;
        }
        }
    }

    void expect_gathered() {
        expect([&](std::size_t i) {
            std::size_t within = 0;
            const std::size_t block = block_of(blocks_, i, within);
            return give(static_cast<int>(block), within);
        });
    }

    Case case_;
    std::size_t ranks_;
    int me_;
    int root_;
    const std::string* complaint_; ///< nullptr: nothing throws; empty: another rank throws
    Counts blocks_;
    Counts received_;
    std::vector<T> in_, out_, expected_in_, expected_out_;
    std::span<T> input_, output_;
    un::Operation handle_, other_handle_;

public:
    void finish() {
        handle_.wait();
        other_handle_.wait();
    }
};

/// Input and output of all_gather, all_reduce, reduce_scatter or all_to_all lie in one array at
/// random. The call is refused if they overlap in a forbidden way. Otherwise its result is right.
template <class Family>
std::string try_overlap(Group& group, Random& same, std::uint64_t number, const Family& family) {
    const auto ranks = static_cast<std::size_t>(group.size());
    const auto me = static_cast<std::size_t>(group.rank());
    constexpr std::size_t counts[] = {0, 1, 3, 40, 300, 5000, 40'000};
    const std::size_t block = counts[same() % std::size(counts)];
    const int kind = static_cast<int>(same() % 4);
    const std::size_t input = kind == 0 ? block : block * ranks;
    const std::size_t output = kind == 2 ? block : block * ranks;
    std::vector<int> memory(input + output + 8);
    const std::size_t in_at = same() % (output + 4);
    // At an allowed place, near it, or anywhere. All ranks have the same distance, except for the
    // place of the own block.
    const std::uint64_t way = same() % 3;
    std::size_t out_at = same() % (input + 4);
    const std::size_t place = kind == 0 || kind == 2 ? me * block : 0;
    std::size_t at = in_at;
    if (way != 2) {
        const std::size_t off = way == 0 ? 0 : 1 + same() % 2;
        if (kind == 0) {
            out_at = 1;
            at = 1 + place + off;
        } else if (kind == 2) {
            at = 1;
            out_at = 1 + place + off;
        } else {
            out_at = at = 1;
            at += off;
        }
    }
    if (at + input > memory.size() || out_at + output > memory.size()) return {};
    const bool overlaps = input != 0 && output != 0 && at < out_at + output && out_at < at + input;
    const bool same_place = kind == 0 ? at == out_at + place : kind == 2 ? at + place == out_at : at == out_at;
    const bool allowed = !overlaps || (same_place && kind != 3);
    bool all_allowed = true; // ranks overlap differently if blocks lie elsewhere
    std::vector<int> opinions(ranks);
    const int mine = allowed ? 1 : 0;
    un::all_gather(group, std::span<const int>(&mine, 1), opinions);
    for (const int opinion : opinions) all_allowed = all_allowed && opinion != 0;
    if (!all_allowed && allowed) return {}; // the others are refused and do not take part
    const std::span<int> in(memory.data() + at, input);
    const std::span<int> out(memory.data() + out_at, output);
    for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = -static_cast<int>(i);
    for (std::size_t i = 0; i < input; ++i) in[i] = given<int>(number, group.rank(), i);
    const std::vector<int> was = memory;
    const auto call = [&] {
        const std::span<const int> from(in);
        if (kind == 0) un::all_gather(group, from, out, {}, family);
        else if (kind == 1) un::all_reduce(group, from, out, un::Sum{}, family);
        else if (kind == 2) un::reduce_scatter(group, from, out, un::Sum{}, {}, family);
        else un::all_to_all(group, from, out, {}, {}, family);
    };
    const std::string what = "overlap: kind " + std::to_string(kind) + " block " + std::to_string(block) +
                             " input at " + std::to_string(at) + " output at " + std::to_string(out_at) + " rank " +
                             std::to_string(me) + " of " + std::to_string(ranks);
    if (!allowed) {
        try {
            call();
        } catch (const un::error& refused) {
            const std::string text = refused.what();
            if (refused.code() != un::ErrorCode::bad_input || text.find("overlaps") == std::string::npos ||
                text.find("rank " + std::to_string(me)) == std::string::npos)
                return what + ": " + text;
            return memory == was ? "" : what + " changed memory";
        }
        return what + " was not refused";
    }
    call();
    for (std::size_t i = 0; i < output; ++i) {
        const auto sum = [&](std::size_t of) {
            int all = 0;
            for (int rank = 0; rank < group.size(); ++rank) all += given<int>(number, rank, of);
            return all;
        };
        const int expected = kind == 0   ? given<int>(number, static_cast<int>(i / block), i % block)
                             : kind == 1 ? sum(i)
                             : kind == 2 ? sum(place + i)
                                         : given<int>(number, static_cast<int>(i / block), me * block + i % block);
        if (out[i] != expected) return what + " is wrong";
    }
    return {};
}

/// The life of one world: cases, overlaps, and finally an operation that throws on one rank, if
/// requested.
struct Life {
    std::uint64_t seed = 0;
    int batches = 0;
    bool ends_by_throw = false;
};

template <class T>
void fly(Group& group, test::Findings& findings, const std::vector<Case>& cases, Random& own) {
    std::vector<std::unique_ptr<Flight<T>>> flights;
    for (const Case& one : cases) flights.push_back(std::make_unique<Flight<T>>(group, one));
    std::vector<std::size_t> order(flights.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::shuffle(order.begin(), order.end(), own);
    for (const std::size_t index : order) {
        for (std::uint64_t polls = own() % 4; polls != 0; --polls)
            if (flights[index]->poll()) break;
        flights[index]->finish();
        const std::string wrong = flights[index]->wrong();
        findings.expect(wrong.empty(), wrong);
    }
}

inline void live(Group& world, test::Findings& findings, const Life& life) {
    Random same(life.seed);
    Random own(life.seed * 8 + static_cast<std::uint64_t>(world.rank()));
    Group part = world.split(world.rank() % 2, world.size() - world.rank());
    std::uint64_t number = life.seed << 20;
    for (int batch = 0; batch < life.batches; ++batch) {
        const std::uint64_t draws = same();
        Group& group = draws % 3 == 0 ? part : world;
        std::vector<Case> cases(1 + draws / 3 % 4);
        for (Case& one : cases) one = draw(same, ++number);
        if (draws / 16 % 2 == 0) fly<std::int32_t>(group, findings, cases, own);
        else fly<std::uint8_t>(group, findings, cases, own);
    }
    if (!life.ends_by_throw) return;
    Case last = draw(same, ++number);
    last.operation = 2;
    last.kind = same() % 4 == 0 ? Kind::reduce_scatter : same() % 4 == 0 ? Kind::reduce : Kind::all_reduce;
    last.own_counts = false;
    const int culprit = static_cast<int>(same() % static_cast<std::uint64_t>(world.size()));
    const std::string text = "complaint " + std::to_string(number);
    const std::string complaint = world.rank() == culprit ? text : "";
    try {
        Flight<std::int32_t> flight(world, last, &complaint);
        flight.finish();
        if (world.rank() == culprit) throw std::out_of_range(text); // it had nothing to combine
        un::barrier(world);
        findings.expect(false, last.text() + ": no error on rank " + std::to_string(world.rank()));
    } catch (const un::error& failed) {
        const std::string found = failed.what();
        findings.expect(found.find("rank " + std::to_string(culprit) + " threw: " + text) != std::string::npos,
                        last.text() + ": " + found);
        throw;
    } catch (const std::out_of_range& own_one) {
        findings.expect(world.rank() == culprit && own_one.what() == text, last.text() + ": " + own_one.what());
        throw;
    }
}

} // namespace campaign

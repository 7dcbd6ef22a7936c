#pragma once

/// \file
/// The state of a simulated world's ranks: the future events, earliest first, the receives that
/// wait for messages; and reports: counters, a trace, and the reason for a deadlock.

#include "unisono/core/text.hpp"
#include "unisono/core/time.hpp"
#include "unisono/extensions/simulated/network.hpp"
#include "unisono/transport/transport.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <string>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

struct SimulatedEvent {
    enum class Kind : std::uint32_t { departure, arrival, timer, crash, detection, stop, action };

    nanoseconds time = 0;
    std::uint64_t number = 0; ///< the order of creation, which orders events at the same time
    Kind kind = Kind::timer;
    std::uint32_t subject = 0; ///< a message, a rank, an action, or an index into the options

    [[nodiscard]] bool is_before(const SimulatedEvent& other) const {
        return time != other.time ? time < other.time : number < other.number;
    }
};

/// Events by (time, number). If all links are equal and there is no jitter, messages are sent in
/// the order in which they arrive, and such runs cost only a ring buffer. All other events go
/// through a heap.
class SimulatedEvents {
public:
    [[nodiscard]] bool empty() const { return count_ == 0 && heap_.empty(); }
    [[nodiscard]] nanoseconds next_time() const { return front().time; }

    void push(nanoseconds time, SimulatedEvent::Kind kind, std::uint32_t subject) {
        const SimulatedEvent made{time, ++made_, kind, subject};
        const bool of_message = kind == SimulatedEvent::Kind::arrival || kind == SimulatedEvent::Kind::departure;
        if (of_message && (count_ == 0 || last().time <= time)) return append(made);
        heap_.push_back(made);
        std::push_heap(heap_.begin(), heap_.end(), is_after);
    }

    SimulatedEvent pop() {
        const SimulatedEvent first = front();
        if (in_run()) {
            head_ = (head_ + 1) & (run_.size() - 1);
            --count_;
        } else {
            std::pop_heap(heap_.begin(), heap_.end(), is_after);
            heap_.pop_back();
        }
        return first;
    }

private:
    static bool is_after(const SimulatedEvent& a, const SimulatedEvent& b) { return b.is_before(a); }
    [[nodiscard]] bool in_run() const { return count_ != 0 && (heap_.empty() || run_[head_].is_before(heap_.front())); }
    [[nodiscard]] const SimulatedEvent& front() const { return in_run() ? run_[head_] : heap_.front(); }
    [[nodiscard]] const SimulatedEvent& last() const { return run_[(head_ + count_ - 1) & (run_.size() - 1)]; }

    void append(const SimulatedEvent& made) {
        if (count_ == run_.size()) {
            std::rotate(run_.begin(), run_.begin() + static_cast<std::ptrdiff_t>(head_), run_.end());
            head_ = 0;
            run_.resize(std::max<std::size_t>(16, run_.size() * 2));
        }
        run_[(head_ + count_++) & (run_.size() - 1)] = made;
    }

    std::vector<SimulatedEvent> run_; ///< a ring buffer, its size a power of two
    std::size_t head_ = 0;
    std::size_t count_ = 0;
    std::vector<SimulatedEvent> heap_;
    std::uint64_t made_ = 0;
};

/// One rank's receives and early messages, by peer and tag: an open hash table, since a rank may
/// have thousands of either. A key is there at most once, as a receive or as a message.
class SimulatedMatches {
public:
    enum class Kind : std::uint32_t { none, receive, message };

    struct Entry {
        Tag tag;
        std::uint64_t value = 0; ///< the receive's token, or the message's index
        int peer = -1;
        Kind kind = Kind::none;
    };

    /// Removes the entry of this key if it is of kind `wanted`; else adds one of the other kind.
    bool take_or_put(Kind wanted, int peer, const Tag& tag, std::uint64_t& taken, std::uint64_t put) {
        if (slots_.empty() || count_ * 4 >= slots_.size() * 3) grow();
        const std::size_t mask = slots_.size() - 1;
        std::size_t at = hash(peer, tag) & mask;
        for (; slots_[at].kind != Kind::none; at = (at + 1) & mask) {
            Entry& entry = slots_[at];
            if (entry.peer != peer || !(entry.tag == tag) || entry.kind != wanted) continue;
            taken = entry.value;
            erase(at);
            return true;
        }
        slots_[at] = {tag, put, peer, wanted == Kind::receive ? Kind::message : Kind::receive};
        ++count_;
        return false;
    }

    /// Removes the entries for which `is_one(entry)` is true.
    template <class IsOne>
    void erase_if(IsOne is_one) {
        std::vector<Entry> old(slots_.size());
        old.swap(slots_);
        count_ = 0;
        for (const Entry& entry : old) {
            if (entry.kind == Kind::none || is_one(entry)) continue;
            std::uint64_t nothing = 0;
            const Kind other = entry.kind == Kind::receive ? Kind::message : Kind::receive;
            static_cast<void>(take_or_put(other, entry.peer, entry.tag, nothing, entry.value));
        }
    }

    template <class Visit>
    void for_each(Visit visit) const {
        for (const Entry& entry : slots_)
            if (entry.kind != Kind::none) visit(entry);
    }

private:
    static std::size_t hash(int peer, const Tag& tag) {
        std::uint64_t mixed =
            (tag.position ^ (tag.position >> 29)) + static_cast<std::uint64_t>(peer) * 0x9e3779b97f4a7c15u;
        mixed ^= tag.context;
        mixed *= 0xbf58476d1ce4e5b9u;
        return mixed ^ (mixed >> 31);
    }

    void erase(std::size_t hole) { // closes the gap, so that no tombstones accumulate
        const std::size_t mask = slots_.size() - 1;
        for (std::size_t at = (hole + 1) & mask; slots_[at].kind != Kind::none; at = (at + 1) & mask) {
            const std::size_t home = hash(slots_[at].peer, slots_[at].tag) & mask;
            if (((at - home) & mask) < ((at - hole) & mask)) continue;
            slots_[hole] = slots_[at];
            hole = at;
        }
        slots_[hole].kind = Kind::none;
        --count_;
    }

    void grow() {
        std::vector<Entry> old(std::max<std::size_t>(4, slots_.size() * 2));
        old.swap(slots_);
        const std::size_t mask = slots_.size() - 1;
        for (const Entry& entry : old) {
            if (entry.kind == Kind::none) continue;
            std::size_t at = hash(entry.peer, entry.tag) & mask;
            while (slots_[at].kind != Kind::none) at = (at + 1) & mask;
            slots_[at] = entry;
        }
    }

    std::vector<Entry> slots_;
    std::size_t count_ = 0;
};

} // namespace detail

/// Statistics of a simulated rank.
struct SimulatedRank {
    std::uint64_t messages_sent = 0;
    std::uint64_t bytes_sent = 0;
    std::uint64_t messages_received = 0;
    std::uint64_t bytes_received = 0;
    nanoseconds finished_at = 0; ///< the time when it last received a message, or left
    bool crashed = false;
    friend bool operator==(const SimulatedRank&, const SimulatedRank&) = default;
};

/// Thrown on the thread of a rank that the simulator crashes, to end it. Not to be caught.
struct SimulatedCrash : std::exception {
    [[nodiscard]] const char* what() const noexcept override { return "the simulator crashed this rank"; }
};

namespace detail {

class SimulatedState {
public:
    SimulatedState(int size, SimulationOptions options)
        : size_(size), options_(std::move(options)), ranks_(static_cast<std::size_t>(size)) {
        options_.check(size);
    }
    SimulatedState(const SimulatedState&) = delete;
    SimulatedState& operator=(const SimulatedState&) = delete;

    [[nodiscard]] int size() const { return size_; }
    [[nodiscard]] const SimulationOptions& options() const { return options_; }
    [[nodiscard]] nanoseconds clock() const { return clock_; }
    [[nodiscard]] nanoseconds now(int rank) const { return std::max(clock_, at(rank).busy_until); }
    [[nodiscard]] const SimulatedRank& statistics(int rank) const { return at(rank).statistics; }
    [[nodiscard]] std::uint64_t messages() const { return messages_sent_; }
    [[nodiscard]] std::uint64_t bytes() const { return bytes_sent_; }
    [[nodiscard]] std::uint64_t digest() const { return digest_; }
    /// Not 0 from the world's first fault on.
    [[nodiscard]] const std::atomic<std::uint32_t>& fault_word() const { return has_fault_; }
    [[nodiscard]] const Fault* first_fault() const { return has_fault_ != 0 ? &fault_ : nullptr; }
    /// True if the rank is gone, and none of its messages are in flight.
    [[nodiscard]] bool has_left(int rank) const { return at(rank).left && at(rank).under_way == 0; }

protected:
    ~SimulatedState() = default;

    static constexpr std::uint32_t departed = 0xffffffffu;

    struct Delivery {
        Token token = 0;
        std::uint32_t message = departed; ///< an index; or `departed`: a send has left
    };

    struct Rank {
        SimulatedMatches matches;
        std::vector<Delivery> inbox;
        nanoseconds busy_until = 0;
        nanoseconds wake_at = never;  ///< looks at the clock then, if no event comes before
        nanoseconds timer_at = never; ///< the current timer; earlier ones are ignored
        std::uint64_t under_way = 0;  ///< messages of this rank in flight
        std::uint64_t view = 0;       ///< the group of ranks to which it belongs, if there are several
        std::uint32_t fruitless = 0;
        bool queued = false;
        bool computes = false;
        bool left = false; ///< as its peers see it
        bool gone = false; ///< has no thread any more
        SimulatedRank statistics;
    };
    struct Loss {
        nanoseconds time = 0;
        int from = 0;
        int to = 0;
    };

    Rank& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
    [[nodiscard]] const Rank& at(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }

    [[nodiscard]] bool anybody_left() const {
        return std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return !rank.gone; });
    }

    void record(TraceKind kind, int from, int to, std::uint64_t bytes, const Tag& tag) {
        const auto mix = [&](std::uint64_t value) {
            digest_ = (digest_ ^ value) * 0x9e3779b97f4a7c15u;
            digest_ ^= digest_ >> 32;
        };
        mix(static_cast<std::uint64_t>(clock_));
        mix((static_cast<std::uint64_t>(kind) << 56) ^ (static_cast<std::uint64_t>(from) << 28) ^
            static_cast<std::uint64_t>(to));
        mix(tag.position ^ (bytes << 40));
        if (options_.trace) options_.trace({clock_, kind, from, to, bytes, tag});
    }

    void note_loss(int from, int to) {
        if (losses_.size() < most_named) losses_.push_back({clock_, from, to});
        ++lost_;
    }

    /// The fault of a deadlock: no event can wake any rank.
    [[nodiscard]] Fault deadlock(const std::string& why) const {
        Fault fault{.code = ErrorCode::timeout, .message = concat({"deadlock: ", why})};
        for (int rank = 0; rank < size_ && fault.rank < 0; ++rank) {
            if (at(rank).gone || at(rank).statistics.crashed) continue;
            fault.rank = rank;
            fault.peer = awaited_by(rank);
        }
        explain(fault);
        return fault;
    }

    /// The lowest rank that this rank waits for, or -1.
    [[nodiscard]] int awaited_by(int rank) const {
        int lowest = -1;
        at(rank).matches.for_each([&](const SimulatedMatches::Entry& entry) {
            if (entry.kind == SimulatedMatches::Kind::receive && (lowest < 0 || entry.peer < lowest))
                lowest = entry.peer;
        });
        return lowest;
    }

    /// Adds facts that the simulator knows, and the rank that gave up does not: crashed ranks, lost
    /// messages, and which rank waits for which.
    void explain(Fault& fault) const {
        if (fault.code != ErrorCode::timeout) return;
        for (const RankCrash& crash : options_.crashes) {
            if (!at(crash.rank).statistics.crashed) continue;
            fault.message +=
                concat({"; rank ", crash.rank, " crashed at ", at(crash.rank).statistics.finished_at, " ns"});
            if (fault.peer < 0) fault.peer = crash.rank;
        }
        if (lost_ != 0) {
            fault.message += concat({"; messages lost: ", lost_});
            for (const Loss& loss : losses_) {
                fault.message += concat({", from rank ", loss.from, " to rank ", loss.to, " at ", loss.time, " ns"});
                if (fault.peer < 0) fault.peer = loss.from;
            }
        }
        std::size_t named = 0;
        for (int rank = 0; rank < size_ && named < most_named; ++rank) {
            if (at(rank).gone || at(rank).statistics.crashed) continue;
            const int peer = awaited_by(rank);
            if (peer < 0) continue;
            fault.message += concat({"; rank ", rank, " waits for rank ", peer});
            ++named;
        }
    }

    static constexpr std::size_t most_named = 8;

    int size_;
    SimulationOptions options_;
    std::vector<Rank> ranks_;
    nanoseconds clock_ = 0;
    std::uint64_t messages_sent_ = 0;
    std::uint64_t bytes_sent_ = 0;
    std::atomic<std::uint32_t> has_fault_{0}; ///< one rank runs at a time: an atomic for readers of `fault_word`
    Fault fault_;

private:
    std::uint64_t digest_ = 0;
    std::uint64_t lost_ = 0;
    std::vector<Loss> losses_;
};

} // namespace detail
UNISONO_NAMESPACE_END

#pragma once

/// \file
/// The future events of a simulated world, earliest first; and the receives that wait for messages.

#include "unisono/core/time.hpp"
#include "unisono/transport/transport.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
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
        for (const Entry& entry : slots_) {
            if (entry.kind != Kind::none) visit(entry);
        }
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
UNISONO_NAMESPACE_END

#pragma once

/// The states of an exploration (explorer.hpp) as numbers: one for each state of a
/// process, each message, and each sequence of messages in flight.

#include "process.hpp"
#include <unisono/core/hash.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace testing {

/// One event.
struct ExploredEvent {
    enum class What : std::uint8_t {
        deliver,
        prove,
        suspect,
        commit,
        enter,
        fail,
        finish,
        apply,
        stop_answering,
        lose_rest,
        time_out,
        stop_waiting,
        crash,
        cut,
        reset,
        heal,
        lose,
        redouble,
        give_up
    };
    What what = What::deliver;
    std::uint8_t who = 0;
    std::uint8_t other = 0; ///< another process, or a set of them
    friend bool operator==(const ExploredEvent&, const ExploredEvent&) = default;
};

/// The misfortunes of an exploration: how often each may happen.
struct ExploreOptions {
    int members = 3;    ///< of the first world: 1 to 4
    int applicants = 0; ///< processes that are added: 0 or 1
    int updates = 2;    ///< committed updates with which a process finishes
    int deaths = 1;
    int timeouts = 1;           ///< suspicions: waits that end although what they wait for may still come
    int cuts = 0;               ///< all connections between two groups end, and are not made again
    int resets = 0;             ///< one connection ends, and is not made again
    int heals = 0;              ///< a connection that has ended is made again
    int losses = 0;             ///< one message is lost, others follow it
    int doubles = 0;            ///< one message comes twice
    unsigned hosts = ~0u;       ///< bit p: process p runs on the first host; the others on a second one
    bool trusts_resets = false; ///< a process takes an ended connection for a proof of death
    bool tries_to_end = true;   ///< tries to end from each state in which nothing is pending
    std::size_t most_states = 100'000'000;
    int most_depth = 1'000;
    std::vector<ExploredEvent> begins_with = {}; ///< the first events; all that can follow them is explored
};

/// The greatest number of processes of an exploration.
inline constexpr int most_explored = 5;
inline constexpr std::size_t explored_ways = std::size_t{most_explored} * most_explored; ///< from one to one

/// One state of a world.
struct ExploredState {
    /// The misfortunes that may still happen, and the processes that have failed.
    struct Left {
        std::uint8_t deaths, timeouts, cuts, resets, heals, losses, doubles, applicants, failed;
        friend bool operator==(const Left&, const Left&) = default;
    };
    std::array<std::uint32_t, most_explored> process = {};
    std::array<std::uint32_t, explored_ways> queue = {}; ///< from * most_explored + to
    /// The messages of each queue from its sender's last event: if the sender dies, it may have
    /// died while it sent them.
    std::array<std::uint8_t, explored_ways> fresh = {};
    Left left = {};

    [[nodiscard]] std::uint64_t hash() const {
        std::uint64_t hash = 0x243f6a8885a308d3u;
        const auto mix = [&](std::uint64_t word) {
            hash = unisono::detail::scrambled(hash ^ (word * 0x9e3779b97f4a7c15u)) + word;
        };
        for (const std::uint32_t one : process) mix(one);
        for (std::size_t i = 0; i < queue.size(); ++i)
            if (queue[i] != 0) mix(std::uint64_t{i + 1} << 32 | queue[i]);
        std::uint64_t last = 0;
        for (const std::uint8_t one : {left.deaths, left.timeouts, left.cuts, left.resets, left.heals, left.losses,
                                       left.doubles, left.applicants})
            last = last << 8 | one;
        mix(last);
        mix(left.failed);
        for (std::size_t i = 0; i < fresh.size(); ++i)
            if (fresh[i] != 0) mix(std::uint64_t{i + 100} << 32 | fresh[i]);
        return hash;
    }
};

/// The facts about a process that the explorer reads.
struct ProcessView {
    Stand stand;
    unisono::detail::MembershipPhase phase;
    bool has_applicant, is_to_be_brought, can_give_up, lingers, answers;
    int path, round, committed_path;
    std::uint64_t updates;
    unsigned open, known, cut, goodbyes, gone, suspected;
    std::vector<Contribution> contributions;
};

/// All states of processes, letters and queues of letters, by their numbers.
template <class Rules>
class MembershipTables {
protected:
    using Process = ExploredProcess<Rules>;

    explicit MembershipTables(int members) : paths_(members) {
        queues_.push_back({});
        queue_rest_.push_back(0);
    }

    std::uint32_t number_of(Process process) {
        StateBytes key;
        process.write(key);
        const auto [found, is_new] =
            process_numbers_.try_emplace(hash_of(key.bytes()), static_cast<std::uint32_t>(processes_.size()));
        if (!is_new) return found->second;
        views_.push_back({process.stand, process.phase(), process.has_applicant(), process.is_to_be_brought(),
                          process.can_give_up(), process.lingers(), process.answers(), process.path(), process.round,
                          process.committed_path, process.updates, process.open(), process.known(), process.cut(),
                          process.goodbyes(), process.gone(), process.suspected(), process.contributions});
        processes_.push_back(std::move(process));
        return found->second;
    }
    std::uint32_t number_of(ExploredLetter letter) {
        StateBytes key;
        letter.write(key);
        const auto [found, is_new] =
            letter_numbers_.try_emplace(hash_of(key.bytes()), static_cast<std::uint32_t>(letters_.size()));
        if (is_new) letters_.push_back(std::move(letter));
        return found->second;
    }
    std::uint32_t appended(std::uint32_t queue, std::uint32_t letter) {
        const std::uint64_t key = std::uint64_t{queue} << 32 | letter;
        if (const auto found = longer_.find(key); found != longer_.end()) return found->second;
        std::vector<std::uint32_t> all = queues_[queue];
        all.push_back(letter);
        const std::uint32_t number = queue_number(std::move(all));
        return longer_[key] = number;
    }
    std::uint32_t queue_number(std::vector<std::uint32_t> all) {
        if (all.empty()) return 0;
        StateBytes key;
        for (const std::uint32_t one : all) key.number(one);
        if (const auto found = queue_numbers_.find(key.bytes()); found != queue_numbers_.end()) return found->second;
        const std::uint32_t rest = queue_number({all.begin() + 1, all.end()});
        const auto number = static_cast<std::uint32_t>(queues_.size());
        queues_.push_back(std::move(all));
        queue_rest_.push_back(rest);
        queue_numbers_.emplace(std::move(key.bytes()), number);
        return number;
    }

    struct Hash {
        std::uint64_t low, high;
        friend bool operator==(const Hash&, const Hash&) = default;
        std::size_t operator()(const Hash& one) const { return one.low; }
    };
    static Hash hash_of(const std::string& bytes) {
        const std::uint64_t low = unisono::detail::hash_bytes(bytes.data(), bytes.size());
        return {low, unisono::detail::scrambled(unisono::detail::hash_bytes(bytes.data(), bytes.size(),
                                                                            unisono::detail::scrambled(bytes.size())))};
    }

    MembershipPaths paths_;
    std::deque<Process> processes_;
    std::deque<ProcessView> views_;
    std::deque<ExploredLetter> letters_;
    std::deque<std::vector<std::uint32_t>> queues_; ///< letters, the next one first; 0: none
    std::vector<std::uint32_t> queue_rest_;         ///< the queue without its first letter

private:
    std::unordered_map<Hash, std::uint32_t, Hash> process_numbers_;
    std::unordered_map<Hash, std::uint32_t, Hash> letter_numbers_;
    std::unordered_map<std::string, std::uint32_t> queue_numbers_;
    std::unordered_map<std::uint64_t, std::uint32_t> longer_;
};

} // namespace testing
UNISONO_NAMESPACE_END

#pragma once

/// \file
/// A world without shared memory, as its ranks see it: addresses, the ranks that have left, the
/// first fault. Threads of this process share one object. Each process has its own, and a control
/// plane (launch/) behind it: `join_network` makes one of processes that share a control plane, of
/// which each listens and publishes its address.

#include "unisono/core/threads.hpp"
#include "unisono/extensions/launch/secrets/token.hpp"
#include "unisono/launch/cores.hpp"
#include "unisono/launch/host.hpp"
#include "unisono/launch/root_cause.hpp"
#include "unisono/transport/overseer.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <sched.h>
#include <unistd.h>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The world of one or more ranks. Addresses are bytes in texts that only the wire interprets.
class NetworkWorld {
public:
    /// A world of threads of this process: each publishes its address when it begins.
    explicit NetworkWorld(int size)
        : size_(size), more_ranks_than_cores_(size > available_cores()),
          key_(size > 1 ? JobToken::random() : JobToken()), addresses_(static_cast<std::size_t>(size)),
          left_(std::make_unique<std::atomic<bool>[]>(static_cast<std::size_t>(size))),
          waits_(static_cast<std::size_t>(size)) {}
    /// One rank's world of processes that a control plane connects. `key`: equal on all its ranks,
    /// and known only to them.
    NetworkWorld(std::vector<std::string> addresses, const JobToken& key, bool more_ranks_than_cores,
                 std::unique_ptr<Overseer> overseer)
        : size_(static_cast<int>(addresses.size())), more_ranks_than_cores_(more_ranks_than_cores), key_(key),
          addresses_(std::move(addresses)), overseer_(std::move(overseer)) {}
    NetworkWorld(const NetworkWorld&) = delete;
    NetworkWorld& operator=(const NetworkWorld&) = delete;

    [[nodiscard]] int size() const { return size_; }
    [[nodiscard]] bool more_ranks_than_cores() const { return more_ranks_than_cores_; }
    /// A key that only ranks of this world know; it rejects strangers.
    [[nodiscard]] const JobToken& key() const { return key_; }

    /// The address of a rank; empty until that rank has begun.
    [[nodiscard]] std::string address(int rank) const {
        const Lock lock(mutex_);
        return addresses_[static_cast<std::size_t>(rank)];
    }
    void publish(int rank, const std::string& address) {
        const Lock lock(mutex_);
        addresses_[static_cast<std::size_t>(rank)] = address;
    }

    /// Keeps an object alive as long as any rank of this process.
    void keep(std::shared_ptr<void> what) {
        const Lock lock(mutex_);
        kept_.push_back(std::move(what));
    }

    [[nodiscard]] const Fault* first_fault() const {
        return overseer_ != nullptr ? overseer_->first_fault() : seen_.load(std::memory_order_acquire);
    }
    /// Records the first fault. For a timeout, its cause is looked for among all ranks.
    void abort(int rank, const Fault& fault) {
        if (first_fault() != nullptr) return;
        if (overseer_ != nullptr) {
            static_cast<void>(overseer_->settle(fault));
            return;
        }
        const Fault found = fault.code == ErrorCode::timeout && rank < size_ ? looked_into(rank, fault) : fault;
        const Lock lock(mutex_);
        if (seen_.load(std::memory_order_relaxed) != nullptr) return;
        fault_ = found;
        seen_.store(&fault_, std::memory_order_release);
    }

    /// Notes the operation for which a rank has waited for a while.
    void waits(int rank, const Wait& wait) {
        if (overseer_ != nullptr) return overseer_->waits(wait);
        const Lock lock(mutex_);
        waits_[static_cast<std::size_t>(rank)] = wait;
    }
    void waits_no_more(int rank) {
        if (overseer_ != nullptr) return overseer_->waits_no_more();
        const Lock lock(mutex_);
        waits_[static_cast<std::size_t>(rank)].operation.clear();
    }

    /// Makes an exception with which a rank leaves a fault; no other rank would report it.
    void report_unwinding(int rank) {
        if (overseer_ == nullptr || first_fault() != nullptr || !overseer_->is_unwinding()) return;
        abort(rank, left_by_exception(rank));
    }
    void leave(int rank) {
        if (overseer_ != nullptr) return overseer_->leave();
        left_[static_cast<std::size_t>(rank)].store(true, std::memory_order_release);
    }
    [[nodiscard]] bool has_left(int rank) const {
        if (overseer_ != nullptr) return overseer_->has_left(rank);
        return left_[static_cast<std::size_t>(rank)].load(std::memory_order_acquire);
    }
    /// False in a process that a rank has forked: the rank belongs to the parent.
    [[nodiscard]] bool is_here() const { return process_ == ::getpid(); }

private:
    [[nodiscard]] Fault looked_into(int rank, const Fault& fault) const {
        std::vector<Answer> answers(static_cast<std::size_t>(size_));
        {
            const Lock lock(mutex_);
            for (std::size_t other = 0; other < answers.size(); ++other) {
                answers[other].wait = waits_[other];
                answers[other].standing = has_left(static_cast<int>(other))       ? Standing::left
                                          : answers[other].wait.operation.empty() ? Standing::works
                                                                                  : Standing::waits;
            }
        }
        Answer& own = answers[static_cast<std::size_t>(rank)];
        own.standing = Standing::waits;
        if (own.wait.operation.empty()) { // it has not reported its operation yet
            own.wait = {.operation = fault.operation, .context = 0, .sequence = fault.sequence, .peers = {}};
            if (fault.peer >= 0) own.wait.peers.push_back(fault.peer);
        }
        return with_culprit(fault, find_root_cause(rank, {answers.data(), answers.size()}));
    }

    int size_;
    bool more_ranks_than_cores_;
    int process_ = ::getpid();
    mutable Mutex mutex_;
    JobToken key_;
    std::vector<std::string> addresses_; ///< by rank
    std::unique_ptr<Overseer> overseer_; ///< null: the ranks are threads, and the members below are theirs
    Fault fault_;
    std::atomic<const Fault*> seen_{nullptr};
    std::unique_ptr<std::atomic<bool>[]> left_;
    std::vector<Wait> waits_;
    std::vector<std::shared_ptr<void>> kept_;
};

/// Each process's message to the others, followed by its address, or by the reason why it has none.
struct NetworkCard {
    static constexpr std::uint64_t expected = 0x33746e656e6f7375;

    std::uint64_t version = expected;
    std::uint64_t host = 0;
    std::array<std::uint8_t, JobToken::bytes> random = {}; ///< for the world's key, which is not sent
    std::uint64_t failed = 0;
    cpu_set_t cores = {};
};

template <control_plane Control>
std::vector<std::string> gather_texts(Control& control, const std::string& mine, nanoseconds deadline) {
    std::vector<std::string> texts;
    for (const Blob& blob : control.all_gather(std::as_bytes(std::span<const char>(mine)), deadline))
        texts.emplace_back(reinterpret_cast<const char*>(blob.data()), blob.size());
    return texts;
}

[[noreturn, gnu::cold]] inline void refuse_join(std::size_t rank, const std::string& why) {
    throw error(Fault{.code = ErrorCode::refused,
                      .rank = static_cast<int>(rank),
                      .operation = "join",
                      .message = concat({"rank ", rank, why})});
}

/// Gives a card and a text of each rank to all ranks. A card has no pointers; it has a version, and
/// says whether its rank has failed, for which the text is the reason. Collective. Errors, the same
/// on all ranks: refused, for another version or with the reason of the first rank that has failed.
template <class Card, control_plane Control>
std::vector<std::pair<Card, std::string>> exchange_cards(Control& control, nanoseconds deadline, const Card& mine,
                                                         const std::string& text) {
    const std::string whole = std::string(reinterpret_cast<const char*>(&mine), sizeof mine) + text;
    std::vector<std::pair<Card, std::string>> cards;
    for (const std::string& one : gather_texts(control, whole, deadline)) {
        const std::size_t rank = cards.size();
        auto& [card, rest] = cards.emplace_back();
        const bool is_card = one.size() >= sizeof card;
        if (is_card) std::memcpy(static_cast<void*>(&card), one.data(), sizeof card);
        if (!is_card || card.version != Card::expected)
            refuse_join(rank, " runs another version of the library, or on another kind of host");
        rest = one.substr(sizeof card);
        if (card.failed != 0) refuse_join(rank, ": " + rest);
    }
    return cards;
}

/// True if some ranks cannot reach the others by the loopback: those on other hosts or in other
/// network name spaces. Collective.
template <control_plane Control>
bool has_other_hosts(Control& control, nanoseconds deadline) {
    const std::uint64_t mine = network_space();
    const std::vector<Blob> all = control.all_gather(std::as_bytes(std::span(&mine, 1)), deadline);
    return std::any_of(all.begin(), all.end(), [&](const Blob& one) {
        return one.size() != sizeof mine || std::memcmp(one.data(), &mine, sizeof mine) != 0;
    });
}

/// Makes a world. `open(other_hosts)` makes this rank reachable and returns its address, for the
/// other ranks' wires. Collective. Errors, the same on all ranks: those of a rank's `open`; refused
/// for another version; the job's first fault.
template <control_plane Control, class Open>
std::shared_ptr<NetworkWorld> join_network(Control control, nanoseconds deadline, Open open) {
    NetworkCard mine;
    mine.host = host_number();
    mine.cores = own_cores();
    mine.random = JobToken::random().value();
    std::string text;
    const bool other_hosts = has_other_hosts(control, deadline);
    try {
        text = open(other_hosts);
    } catch (const error& refused) { // the others must learn of it: they wait for the card
        mine.failed = 1;
        text = refused.why().message;
    }
    std::vector<std::string> addresses;
    Blob random;
    SharedCores cores; // of this host
    for (auto& [card, address] : exchange_cards(control, deadline, mine, text)) {
        const auto drawn = std::as_bytes(std::span(card.random));
        random.insert(random.end(), drawn.begin(), drawn.end());
        if (card.host == mine.host) cores.add(card.cores);
        addresses.push_back(std::move(address));
    }
    JobToken key;
    if constexpr (derives_keys<Control>) key = control.derive_key("unisono2 data", random);
    else key = JobToken::derived_from(std::string_view(reinterpret_cast<const char*>(random.data()), random.size()));
    return std::make_shared<NetworkWorld>(std::move(addresses), key, cores.fewer_than_ranks(),
                                          std::make_unique<ControlOverseer<Control>>(std::move(control)));
}

} // namespace detail
UNISONO_NAMESPACE_END

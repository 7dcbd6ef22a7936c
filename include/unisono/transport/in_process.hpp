#pragma once

/// \file
/// Ranks are threads of one process; peers' memory is read directly.

#include "unisono/core/error.hpp"
#include "unisono/core/list.hpp"
#include "unisono/core/threads.hpp"
#include "unisono/launch/cores.hpp"
#include "unisono/transport/board.hpp"
#include "unisono/transport/memory/bell.hpp"
#include "unisono/transport/memory/channel.hpp"
#include "unisono/transport/memory/endpoint.hpp"
#include "unisono/transport/memory/mapped.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The common state of the ranks of an in-process world: descriptor rings between them, boards, the
/// first fault.
class InProcessWorld {
public:
    static constexpr bool bounces = false; ///< peers see all of each other's memory

    [[gnu::cold]] explicit InProcessWorld(int size)
        : size_(size), more_ranks_than_cores_(size > available_cores()),
          channels_(static_cast<std::size_t>(size) * static_cast<std::size_t>(size)),
          ranks_(static_cast<std::size_t>(size)) {}
    InProcessWorld(const InProcessWorld&) = delete;
    InProcessWorld& operator=(const InProcessWorld&) = delete;
    [[gnu::cold]] ~InProcessWorld() {
        const auto pairs = static_cast<std::size_t>(size_) * static_cast<std::size_t>(size_);
        for (std::size_t i = 0; i < pairs; ++i) delete channels_[i].load(std::memory_order_relaxed);
    }

    [[nodiscard]] int size() const { return size_; }
    [[nodiscard]] bool more_ranks_than_cores() const { return more_ranks_than_cores_; }

    MemoryChannel& channel(int from, int to) {
        auto& place =
            channels_[static_cast<std::size_t>(from) * static_cast<std::size_t>(size_) + static_cast<std::size_t>(to)];
        MemoryChannel* known = place.load(std::memory_order_acquire);
        if (known != nullptr) return *known;
        auto* const made = new MemoryChannel;
        if (place.compare_exchange_strong(known, made, std::memory_order_acq_rel)) return *made;
        delete made;
        return *known;
    }

    Announcements announcements(std::uint64_t context, int size) {
        const Lock lock(mutex_);
        return announcements_.find(context, size);
    }
    MappedBoard mapped_board(std::uint64_t context, int size) {
        const Lock lock(mutex_);
        return boards_.find(context, size);
    }

    void drop_board(std::uint64_t context) noexcept {
        const Lock lock(mutex_);
        announcements_.drop(context);
        boards_.drop(context);
    }

    /// Addresses are the same on all ranks.
    static constexpr std::ptrdiff_t shift(int) { return 0; }

    /// A flag in a cache line of its own, which only receivers write.
    std::atomic<std::uint32_t>& new_flag(int rank) {
        List<LoneFlag*>& flags = state(rank).flags;
        flags.reserve(flags.size() + 1); // else a flag could be lost
        flags.push_back(new LoneFlag);
        return flags.back()->flag;
    }

    [[nodiscard]] SetBells& set_bells() { return set_bells_; }
    [[nodiscard]] MemoryBell& bell(int rank) { return state(rank).bell; }
    [[nodiscard]] const AsymmetricFence& fence() const { return fence_; }
    /// The words that a rank reads without a call. Peers see all of its memory.
    [[nodiscard]] Mapped mapped(int rank) {
        return {.fault = &fault_word_,
                .touching = &state(rank).touching,
                .bells = &set_bells_,
                .fence = fence_,
                .begin = nullptr,
                .bytes = ~std::size_t{0}};
    }

    [[nodiscard]] const Fault* first_fault() const {
        return fault_word_.load(std::memory_order_acquire) != 0 ? &fault_ : nullptr;
    }

    /// Records the first fault, and waits until no other rank accesses foreign memory; none begins
    /// to afterwards.
    [[gnu::cold]] void abort(int rank, const Fault& fault) {
        {
            const Lock lock(mutex_);
            if (fault_word_.load(std::memory_order_relaxed) == 0) {
                fault_ = fault;
                fault_word_.store(1, std::memory_order_seq_cst);
            }
        }
        fence_.pay();
        ring_all();
        for (int other = 0; other < size_; ++other) {
            if (other == rank) continue;
            while (state(other).touching.load(std::memory_order_seq_cst) != 0) yield_core();
        }
    }

    void leave(int rank) {
        state(rank).left.store(true, std::memory_order_release);
        ring_all();
    }
    [[nodiscard]] bool has_left(int rank) const {
        return ranks_[static_cast<std::size_t>(rank)].left.load(std::memory_order_acquire);
    }

private:
    struct alignas(128) LoneFlag {
        std::atomic<std::uint32_t> flag{0};
    };
    struct alignas(128) RankState {
        std::atomic<std::uint32_t> touching{0};
        std::atomic<bool> left{false};
        MemoryBell bell;
        alignas(128) List<LoneFlag*> flags; ///< the rank's own

        ~RankState() {
            for (const LoneFlag* one : flags) delete one;
        }
    };
    void ring_all() {
        if (!set_bells_.any(fence_)) return;
        for (int rank = 0; rank < size_; ++rank) set_bells_.ring(bell(rank));
    }
    RankState& state(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }

    /// The boards of all groups. A board does not move until all of the group's ranks have dropped
    /// it.
    template <class Board>
    class Boards {
    public:
        Boards() = default;
        Boards(const Boards&) = delete;
        Boards& operator=(const Boards&) = delete;
        ~Boards() {
            for (const One& one : all_) delete[] one.ranks;
        }
        [[gnu::cold]] Board find(std::uint64_t context, int size) {
            for (const One& one : all_)
                if (one.context == context) return Board(one.ranks);
            all_.reserve(all_.size() + 1); // else one could be lost
            all_.push_back({context, new typename Board::Rank[static_cast<std::size_t>(size)](), size});
            return Board(all_.back().ranks);
        }
        void drop(std::uint64_t context) noexcept {
            for (One& one : all_) {
                if (one.context != context || --one.users != 0) continue;
                delete[] one.ranks;
                one = all_.back();
                return all_.pop_back();
            }
        }

    private:
        struct One {
            std::uint64_t context = 0;
            typename Board::Rank* ranks = nullptr;
            int users = 0; ///< ranks that have not dropped it
        };
        List<One> all_;
    };

    int size_;
    bool more_ranks_than_cores_;
    AsymmetricFence fence_;
    SetBells set_bells_;
    FixedArray<std::atomic<MemoryChannel*>> channels_;
    FixedArray<RankState> ranks_;
    alignas(128) std::atomic<std::uint32_t> fault_word_{0}; ///< 1 once `fault_` is there
    alignas(128) Mutex mutex_;
    Fault fault_;
    Boards<Announcements> announcements_;
    Boards<MappedBoard> boards_;
};

} // namespace detail

/// The transport of one rank of an in-process world, made by `run<InProcess>` (group/run.hpp). On
/// its own it is a world of one.
class InProcess : public detail::MemoryEndpoint<detail::InProcessWorld> {
public:
    static constexpr std::string_view name = "in_process";
    using World = detail::InProcessWorld;

    InProcess();
    InProcess(std::shared_ptr<World> world, int rank);
    InProcess(InProcess&&) noexcept = default;
    InProcess& operator=(InProcess&&) = delete;
    UNISONO_OUTSIDE ~InProcess() override;
};

UNISONO_CERTIFY(transport<InProcess>);

UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
UNISONO_NAMESPACE_BEGIN

[[gnu::cold]] UNISONO_DEFINITION InProcess::InProcess() : InProcess(std::shared_ptr<World>(new World(1)), 0) {}
[[gnu::cold]] UNISONO_DEFINITION InProcess::InProcess(std::shared_ptr<World> world, int rank)
    : MemoryEndpoint(std::move(world), rank, {.name = name}) {
    map();
}
UNISONO_DEFINITION InProcess::~InProcess() = default;

UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES

#pragma once

/// \file
/// A shared-memory world, as one process sees it: the segment, the arenas of the ranks in this
/// process, the first fault, and the ranks that are alive.
///
/// A living rank holds a lock on one byte of the segment's file. The system releases the lock when
/// the rank's process ends, however it ends. So reused process numbers cause no confusion, and
/// nothing needs cleaning up.

#include "unisono/core/list.hpp"
#include "unisono/core/threads.hpp"
#include "unisono/launch/cores.hpp"
#include "unisono/launch/host.hpp"
#include "unisono/launch/root_cause.hpp"
#include "unisono/transport/memory/mapped.hpp"
#include "unisono/transport/overseer.hpp"
#include "unisono/transport/shared_memory/arena.hpp"
#include "unisono/transport/shared_memory/layout.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <sys/random.h>

UNISONO_NAMESPACE_BEGIN
namespace detail {

class SharedMemoryWorld {
public:
    static constexpr bool bounces = true;         ///< peers see only the segment
    static constexpr bool spans_processes = true; ///< forks of a process that has a world may be its ranks

    /// A new world, for threads of this process and for processes forked from it. `arena_bytes`:
    /// the most that one rank may allocate; 0: UNISONO_SHARED_MEMORY_MIB, else as much as the
    /// machine has. Errors: bad_input, refused.
    explicit SharedMemoryWorld(int size, std::size_t arena_bytes = 0);
    SharedMemoryWorld(const SharedMemoryWorld&) = delete;
    SharedMemoryWorld& operator=(const SharedMemoryWorld&) = delete;
    ~SharedMemoryWorld();

    [[nodiscard]] int size() const { return size_; }
    [[nodiscard]] bool more_ranks_than_cores() const { return more_ranks_than_cores_; }

    /// Begins a rank's life in this process.
    void attach(int rank);

    /// The offset from an address in `peer`'s address space to the same memory here.
    [[nodiscard]] std::ptrdiff_t shift(int peer) const {
        return static_cast<std::ptrdiff_t>(reinterpret_cast<std::uintptr_t>(segment_.base()) -
                                           record(peer).base.load(std::memory_order_relaxed));
    }

    // --- memory ----------------------------------------------------------------------------------

    /// True if peers see this memory.
    [[nodiscard]] bool reaches(const void* data, std::size_t bytes) const {
        const auto at = reinterpret_cast<std::uintptr_t>(data) - reinterpret_cast<std::uintptr_t>(segment_.base());
        return at < segment_.bytes() && bytes <= segment_.bytes() - at;
    }
    std::byte* allocate(int rank, std::size_t bytes) { return arena(rank).allocate(bytes); }
    void release(int rank, const std::byte* block) noexcept { arena(rank).release(block); }
    [[nodiscard]] SharedArena& arena(int rank) { return *arenas_[static_cast<std::size_t>(rank)]; }

    /// A new flag in a cache line of its own.
    std::atomic<std::uint32_t>& new_flag(int rank) {
        return *::new (allocate(rank, SharedArena::line)) std::atomic<std::uint32_t>(0);
    }

    MemoryChannel& channel(int from, int to) {
        const std::size_t at =
            layout_.channels +
            (static_cast<std::size_t>(from) * layout_.ranks + static_cast<std::size_t>(to)) * layout_.channel_stride;
        segment_.back(at, sizeof(MemoryChannel));
        return place<MemoryChannel>(at);
    }

    Announcements announcements(std::uint64_t context, int) {
        return Announcements(&place<Announcements::Rank>(board_of(context)));
    }
    MappedBoard mapped_board(std::uint64_t context, int) {
        return MappedBoard(&place<MappedBoard::Rank>(board_of(context) + layout_.lines));
    }

    /// Notes that a rank of a group no longer needs its board. A group's number modulo the number
    /// of boards is its board.
    void drop_board(std::uint64_t context) const noexcept {
        let_go(context % SharedLayout::most_groups).fetch_add(1, std::memory_order_acq_rel);
    }
    [[nodiscard]] std::uint32_t dropped(std::size_t board) const {
        return let_go(board).load(std::memory_order_acquire);
    }
    /// Clears a board that all ranks have dropped.
    void clear_board(std::size_t board) const noexcept {
        segment_.give_back(layout_.boards + board * layout_.board_stride, layout_.board_stride);
        let_go(board).store(0, std::memory_order_relaxed);
    }

    // --- sleeping ranks ---

    [[nodiscard]] SetBells& set_bells() { return header().set_bells; }
    [[nodiscard]] MemoryBell& bell(int rank) { return record(rank).bell; }
    [[nodiscard]] const AsymmetricFence& fence() const { return fence_; }
    /// The words that a rank of this process reads without a call. The rank must be attached.
    [[nodiscard]] Mapped mapped(int rank) {
        SharedHeader& all = header();
        return {&all.first_fault, &record(rank).touching, &all.set_bells, fence_, segment_.base(), segment_.bytes()};
    }

    // --- faults ----------------------------------------------------------------------------------

    [[nodiscard]] const Fault* first_fault() const {
        const std::uint32_t who = header().first_fault.load(std::memory_order_acquire);
        if (who == 0) [[likely]]
            return nullptr;
        return read_fault(who - 1);
    }

    /// Records the first fault, and waits until no other rank accesses foreign memory; none begins
    /// to afterwards. `rank` may also be size(): the launcher of the ranks.
    void abort(int rank, const Fault& fault);

    /// Makes the job's first fault the world's, if a control plane watches the job.
    void watch(int rank);
    /// Notes the operation for which a rank has waited for a while; it helps to find the cause of a
    /// timeout.
    void waits(int rank, const Wait& wait);
    void waits_no_more(int rank);
    /// Sets the overseer of a world that has none; the world then owns it.
    void set_overseer(Overseer* overseer) { overseer_ = overseer; }

    // --- presence ---

    /// Notes that a rank leaves. Does nothing in a process that a rank has forked: the rank belongs
    /// to the parent.
    void leave(int rank);
    [[nodiscard]] bool has_left(int rank) const {
        return record(rank).state.load(std::memory_order_acquire) == SharedRank::left;
    }
    /// True if the rank's process has ended without leaving. Costs a system call.
    [[nodiscard]] bool has_died(int rank) const;
    [[nodiscard]] const SharedSegment& segment() const { return segment_; }

protected:
    SharedMemoryWorld() = default;

    void create(std::size_t arena_bytes);

    void adopt(SharedSegment segment);

    void set_size(int size) { size_ = size; }
    void set_cores(int cores) { more_ranks_than_cores_ = size_ > cores; }
    [[nodiscard]] SharedHeader& header() const { return place<SharedHeader>(0); }

private:
    template <class T>
    [[nodiscard]] T& place(std::size_t offset) const {
        return *reinterpret_cast<T*>(segment_.base() + offset);
    }
    [[nodiscard]] SharedRank& record(int rank) const {
        return place<SharedRank>(layout_.records + static_cast<std::size_t>(rank) * sizeof(SharedRank));
    }
    static struct flock lock_of(int rank);

    std::size_t board_of(std::uint64_t context) const {
        const std::size_t at = layout_.boards + context % SharedLayout::most_groups * layout_.board_stride;
        segment_.back(at, layout_.board_stride);
        return at;
    }
    [[nodiscard]] std::atomic<std::uint32_t>& let_go(std::size_t board) const {
        return place<std::atomic<std::uint32_t>>(layout_.groups + board * sizeof(std::atomic<std::uint32_t>));
    }

    /// A timeout's fault, with the rank that caused it, as far as the ranks have reported what they
    /// wait for.
    [[nodiscard]] Fault looked_into(int rank, const Fault& fault) const;
    /// Asks all ranks for their waits. True if one is stopped.
    bool ask_all(int rank, const Fault& fault, FixedArray<Answer>& answers) const;

    void record_fault(int rank, const Fault& fault);

    void ring_all();

    const Fault* read_fault(std::uint32_t who) const;

    /// False if a rank is stopped while it accesses memory: it may continue to do so at any time.
    bool wait_until_quiet(int rank) const;
    static constexpr nanoseconds quiet_limit = 10'000'000'000; ///< for a rank that runs and does not continue

    int size_ = 0;
    bool more_ranks_than_cores_ = false;
    SharedLayout layout_;
    SharedSegment segment_;
    AsymmetricFence fence_{AsymmetricFence::Reach::host};
    Overseer* overseer_ = nullptr; ///< owned by the world
    std::int32_t process_ = 0;     ///< the process of the ranks of this object
    List<SharedArena*> arenas_;
    mutable Mutex mutex_;
    mutable Fault fault_; ///< a copy of the world's
};

} // namespace detail
UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
UNISONO_NAMESPACE_BEGIN
namespace detail {

UNISONO_DEFINITION SharedMemoryWorld::~SharedMemoryWorld() {
    for (const SharedArena* one : arenas_) delete one;
    delete overseer_;
}

UNISONO_DEFINITION SharedMemoryWorld::SharedMemoryWorld(int size, std::size_t arena_bytes) : size_(size) {
    if (size < 1 || size > SharedLayout::most_ranks)
        refuse_input({"a world in shared memory has 1 to ", SharedLayout::most_ranks, " ranks, found ", size});
    create(arena_bytes);
    set_cores(available_cores());
}

UNISONO_DEFINITION void SharedMemoryWorld::attach(int rank) {
    if (segment_.base() == nullptr || rank < 0 || rank >= size_)
        refuse_shared_memory(concat({"rank ", rank, " of ", size_, " has no memory in common with the others"}), 0);
    const std::int32_t process = ::getpid();
    const Lock lock(mutex_);
    SharedRank& me = record(rank);
    if (me.state.load(std::memory_order_acquire) == SharedRank::attached && me.process.load() == process) return;
    if (process_ != process) { // this process, or a fork of the one that made the world
        process_ = process;
        fence_ = AsymmetricFence(AsymmetricFence::Reach::host);
    }
    struct flock life = lock_of(rank);
    if (::fcntl(segment_.file(), F_SETLK, &life) != 0)
        refuse_shared_memory(concat({"rank ", rank, " is taken"}), errno);
    SharedArena*& arena = arenas_[static_cast<std::size_t>(rank)];
    if (arena == nullptr)
        arena = new SharedArena(segment_, layout_.arenas + static_cast<std::size_t>(rank) * layout_.arena_stride,
                                layout_.arena_bytes);
    me.process.store(process, std::memory_order_relaxed);
    me.base.store(reinterpret_cast<std::uintptr_t>(segment_.base()), std::memory_order_relaxed);
    me.state.store(SharedRank::attached, std::memory_order_release);
}

UNISONO_DEFINITION void SharedMemoryWorld::abort(int rank, const Fault& fault) {
    if (first_fault() != nullptr) return record_fault(rank, fault);
    if (overseer_ != nullptr) return record_fault(rank, overseer_->settle(fault));
    record_fault(rank, fault.code == ErrorCode::timeout && rank < size_ ? looked_into(rank, fault) : fault);
}

UNISONO_DEFINITION void SharedMemoryWorld::watch(int rank) {
    if (overseer_ == nullptr || first_fault() != nullptr) return;
    if (const Fault* const found = overseer_->first_fault()) record_fault(rank, *found);
}

UNISONO_DEFINITION void SharedMemoryWorld::waits(int rank, const Wait& wait) {
    if (overseer_ != nullptr) overseer_->waits(wait);
    else record(rank).wait.write(wait);
}

UNISONO_DEFINITION void SharedMemoryWorld::waits_no_more(int rank) {
    if (overseer_ != nullptr) overseer_->waits_no_more();
    else record(rank).wait.clear();
}

UNISONO_DEFINITION void SharedMemoryWorld::leave(int rank) {
    if (process_ != ::getpid()) return;
    if (overseer_ != nullptr && first_fault() == nullptr && overseer_->is_unwinding()) {
        abort(rank, left_by_exception(rank));
    }
    record(rank).state.store(SharedRank::left, std::memory_order_release);
    ring_all();
    if (overseer_ != nullptr) overseer_->leave();
}

UNISONO_DEFINITION bool SharedMemoryWorld::has_died(int rank) const {
    const SharedRank& other = record(rank);
    if (other.state.load(std::memory_order_acquire) != SharedRank::attached) return false;
    if (other.process.load(std::memory_order_relaxed) == process_) return false;
    struct flock life = lock_of(rank);
    if (::fcntl(segment_.file(), F_GETLK, &life) != 0 || life.l_type != F_UNLCK) return false;
    return other.state.load(std::memory_order_acquire) == SharedRank::attached; // else it left just now
}

UNISONO_DEFINITION void SharedMemoryWorld::create(std::size_t arena_bytes) {
    const std::size_t most = (std::size_t{1} << 45) / static_cast<std::size_t>(size_); // of 47 bits of addresses
    std::size_t wanted = std::min(arena_bytes != 0 ? arena_bytes : arena_of_process(), most);
    for (;; wanted /= 2) {
        try {
            layout_ = SharedLayout(size_, wanted);
            segment_ = SharedSegment::create(layout_.bytes);
            break;
        } catch (const error&) {
            if (arena_bytes != 0 || wanted < (std::size_t{1} << 28)) throw; // else: addresses may be scarce
        }
    }
    segment_.back(0, layout_.boards);
    SharedHeader& all = header();
    all.magic = SharedHeader::expected_magic;
    all.ranks = static_cast<std::uint32_t>(size_);
    all.arena_bytes = layout_.arena_bytes;
    if (::getrandom(all.token, sizeof all.token, 0) != sizeof all.token)
        refuse_shared_memory("no random numbers", errno);
    for (int rank = 0; rank <= size_; ++rank) {
        record(rank).base.store(reinterpret_cast<std::uintptr_t>(segment_.base()), std::memory_order_relaxed);
    }
    arenas_.resize(layout_.ranks);
}

UNISONO_DEFINITION void SharedMemoryWorld::adopt(SharedSegment segment) {
    segment_ = std::move(segment);
    if (segment_.bytes() < sizeof(SharedHeader) || header().magic != SharedHeader::expected_magic ||
        header().ranks != static_cast<std::uint32_t>(size_))
        refuse_shared_memory("the segment belongs to another world, or to another version of the library", 0);
    const std::size_t arena_bytes = header().arena_bytes;
    if (arena_bytes > segment_.bytes()) // which a layout could not add up
        refuse_shared_memory(
            concat({"the segment has ", segment_.bytes(), " bytes and says that a rank's arena has ", arena_bytes}), 0);
    layout_ = SharedLayout(size_, arena_bytes);
    if (layout_.bytes != segment_.bytes())
        refuse_shared_memory("the segment has another layout: was it made by another version of the library?", 0);
    arenas_.resize(layout_.ranks);
}

UNISONO_DEFINITION struct flock SharedMemoryWorld::lock_of(int rank) {
    struct flock lock {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    lock.l_start = rank;
    lock.l_len = 1;
    return lock;
}

UNISONO_DEFINITION Fault SharedMemoryWorld::looked_into(int rank, const Fault& fault) const {
    FixedArray<Answer> answers(static_cast<std::size_t>(size_));
    Culprit culprit;
    for (int looks = 0; looks < 10; ++looks) {
        const bool one_stopped = ask_all(rank, fault, answers);
        culprit = find_root_cause(rank, {&answers[0], static_cast<std::size_t>(size_)});
        // A rank that works may be about to wait for the stopped one.
        if (!one_stopped || culprit.rank < 0 ||
            answers[static_cast<std::size_t>(culprit.rank)].standing != Standing::works)
            break;
        sleep_for(20'000'000);
    }
    return with_culprit(fault, culprit);
}

UNISONO_DEFINITION bool SharedMemoryWorld::ask_all(int rank, const Fault& fault, FixedArray<Answer>& answers) const {
    bool one_stopped = false;
    for (int other = 0; other < size_; ++other) {
        Answer& answer = answers[static_cast<std::size_t>(other)];
        const SharedRank& peer = record(other);
        const std::int32_t process = peer.process.load(std::memory_order_relaxed);
        answer.wait = peer.wait.read();
        if (has_left(other)) answer.standing = Standing::left;
        else if (process != process_ && is_stopped(process)) answer.standing = Standing::stopped;
        else answer.standing = answer.wait.operation.empty() ? Standing::works : Standing::waits;
        one_stopped = one_stopped || answer.standing == Standing::stopped;
    }
    Answer& own = answers[static_cast<std::size_t>(rank)];
    own.standing = Standing::waits;
    if (own.wait.operation.empty()) { // it has not reported its operation yet
        own.wait = {.operation = fault.operation, .context = 0, .sequence = fault.sequence, .peers = {}};
        if (fault.peer >= 0) own.wait.peers.push_back(fault.peer);
        for (int other = 0; other < size_; ++other) own.wait.peers.push_back(other);
    }
    return one_stopped;
}

UNISONO_DEFINITION void SharedMemoryWorld::record_fault(int rank, const Fault& fault) {
    SharedRank& mine = record(rank);
    if (header().first_fault.load(std::memory_order_acquire) == 0 && mine.fault_written.exchange(1) == 0) {
        mine.fault.write(
            fault); // complete before it can be the first: a rank that dies meanwhile leaves no partial fault
        std::uint32_t none = 0;
        header().first_fault.compare_exchange_strong(none, static_cast<std::uint32_t>(rank) + 1,
                                                     std::memory_order_seq_cst);
    }
    fence_.pay();
    ring_all();
    if (!wait_until_quiet(rank) && rank < size_ && arenas_[static_cast<std::size_t>(rank)] != nullptr)
        arena(rank).withdraw();
}

UNISONO_DEFINITION void SharedMemoryWorld::ring_all() {
    if (!set_bells().any(fence_)) return;
    for (int rank = 0; rank < size_; ++rank) set_bells().ring(bell(rank));
}

UNISONO_DEFINITION const Fault* SharedMemoryWorld::read_fault(std::uint32_t who) const {
    const Lock lock(mutex_);
    if (fault_.code == ErrorCode::none) fault_ = record(static_cast<int>(who)).fault.read();
    return &fault_;
}

UNISONO_DEFINITION bool SharedMemoryWorld::wait_until_quiet(int rank) const {
    bool quiet = true;
    nanoseconds limit = 0;
    for (int other = 0; other < size_; ++other) {
        if (other == rank) continue;
        const SharedRank& peer = record(other);
        const bool here = peer.process.load(std::memory_order_relaxed) == process_;
        for (std::uint32_t attempt = 0; peer.touching.load(std::memory_order_seq_cst) != 0; ++attempt) {
            yield_core();
            if (here || attempt % 256 != 255) continue;
            if (has_died(other)) break;
            const nanoseconds now = steady_now();
            if (limit == 0) limit = now + quiet_limit;
            if (now <= limit && !is_stopped(peer.process.load(std::memory_order_relaxed))) continue;
            quiet = false;
            break;
        }
    }
    return quiet;
}

} // namespace detail
UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES

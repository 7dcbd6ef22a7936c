#pragma once

/// \file
/// Ranks are processes of one host, or threads. A rank reads peers' memory directly if it is in the
/// segment that all ranks map.
///
/// Memory from `group.allocate<T>(n)` is in the segment: its data are combined directly from and to
/// the peers' buffers, and large messages are read in place. Other memory is accepted with one copy
/// into the segment and, for results that peers write, one out of it. The copies take at most the
/// memory that the operations in flight need.
///
/// If a rank's process ends without leaving, all ranks that wait for it notice within milliseconds
/// (peer_lost). A rank that is stopped or slow is noticed at the deadline that the program set
/// (timeout).

#include "unisono/core/list.hpp"
#include "unisono/core/standard.hpp"
#include "unisono/transport/memory/endpoint.hpp"
#include "unisono/transport/shared_memory/world.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The free boards of one rank of a shared-memory world. Each rank has boards that only it gives
/// away. So no board is given twice, and ranks only need to agree on whose board to take. A board
/// that was given to a group is free again when all its ranks have dropped it.
class SharedBoards {
public:
    static constexpr int none = -1;

    SharedBoards() = default;
    /// The boards `rank`, `rank + ranks`, ...; number 1 is the world's own.
    SharedBoards(int rank, int ranks) : next_(static_cast<std::size_t>(rank)), step_(static_cast<std::size_t>(ranks)) {}

    /// A cleared board, the same one until it is given away; `none` if all are in use.
    int offer(const SharedMemoryWorld& world) {
        if (offered_ == none) offered_ = find(world);
        return offered_;
    }
    /// The offered board now belongs to a group of `ranks` ranks.
    void give(int ranks) {
        given_.push_back({static_cast<std::uint32_t>(offered_), static_cast<std::uint32_t>(ranks)});
        offered_ = none;
    }

private:
    struct Given {
        std::uint32_t board = 0;
        std::uint32_t ranks = 0;
    };
    static constexpr std::size_t few = 64; ///< boards to check before a new one is taken

    int find(const SharedMemoryWorld& world) {
        const int back = find_back(world, few);
        if (back != none) return back;
        if (next_ == 1) next_ += step_;
        if (next_ >= SharedLayout::most_groups) return find_back(world, given_.size());
        const std::size_t fresh = next_;
        next_ += step_;
        return static_cast<int>(fresh);
    }

    /// A dropped board among the next `most` of those that were given.
    int find_back(const SharedMemoryWorld& world, std::size_t most) {
        for (std::size_t i = 0; i < most && i < given_.size(); ++i) {
            cursor_ = cursor_ + 1 < given_.size() ? cursor_ + 1 : 0;
            const Given one = given_[cursor_];
            if (world.dropped(one.board) != one.ranks) continue;
            given_[cursor_] = given_.back();
            given_.pop_back();
            world.clear_board(one.board);
            return static_cast<int>(one.board);
        }
        return none;
    }

    std::size_t next_ = 0; ///< of those that were never given
    std::size_t step_ = 1;
    std::size_t cursor_ = 0;
    int offered_ = none;
    List<Given> given_;
};

} // namespace detail

namespace detail {

/// All that `SharedMemory` does. A template, so that a program which does not use it has none of
/// these functions: a compiler compiles all virtual functions of a class that it may meet behind an
/// `Endpoint`.
template <class World>
class SharedMemoryEndpoint : public MemoryEndpoint<World> {
    using Base = MemoryEndpoint<World>;

public:
    using Base::now, Base::rank, Base::size;

    SharedMemoryEndpoint() : SharedMemoryEndpoint(std::shared_ptr<World>(new World(1)), 0) {}
    SharedMemoryEndpoint(std::shared_ptr<World> shared, int me)
        : Base(std::move(shared), me, {.name = "shared_memory", .wants_waits = true, .allocates = true}),
          boards_(me, size()) {
        world().attach(me);
        this->map();
        died_.resize(static_cast<std::size_t>(size()));
    }

    /// True if peers see these bytes.
    [[nodiscard]] bool reaches(const void* data, std::size_t bytes) const override {
        return world().reaches(data, bytes);
    }

    /// Memory that peers see as long as its owner lives; not cleared. Errors: refused.
    [[nodiscard]] std::shared_ptr<std::byte> allocate(std::size_t bytes) override {
        std::byte* const block = world().allocate(rank(), bytes);
        return {block, [world = this->shared_world(), me = rank()](std::byte* done) { world->release(me, done); }};
    }

    /// The number of bytes of this rank's arena that are in use now.
    [[nodiscard]] std::size_t arena_taken() const { return world().arena(rank()).taken(); }

    /// True if a rank's process has ended without leaving. Checks only from time to time.
    [[nodiscard]] bool has_died(int peer) {
        const nanoseconds time = now();
        if (time - looked_ >= std::max<nanoseconds>(1'000'000, 20'000 * static_cast<nanoseconds>(size()))) {
            looked_ = time;
            look();
            for (int other = 0; other < size(); ++other)
                died_[static_cast<std::size_t>(other)] = world().has_died(other) ? 1 : 0;
        }
        return died_[static_cast<std::size_t>(peer)] != 0;
    }
    [[nodiscard]] Presence presence(int peer) override {
        return has_died(peer) ? Presence::died : Base::presence(peer);
    }
    void look() override { world().watch(rank()); }
    /// The wait helps to find the cause of a timeout.
    void waits(const Wait* wait) override {
        if (wait != nullptr) world().waits(rank(), *wait);
        else world().waits_no_more(rank());
    }

    [[nodiscard]] int offer_board() override { return boards_.offer(world()); }
    /// The group's number has the board's in it.
    [[nodiscard]] std::uint64_t take_board(std::uint64_t context, int board, bool mine, int ranks) override {
        if (mine) boards_.give(ranks);
        constexpr std::uint64_t most = SharedLayout::most_groups;
        return context / most * most + static_cast<std::uint64_t>(board);
    }

protected:
    using Base::world;

private:
    List<std::uint8_t> died_;
    SharedBoards boards_;
    nanoseconds looked_ = 0;
};

} // namespace detail

/// The transport of one rank of a world in shared memory. It is made by `run<SharedMemory>`
/// (group/run_processes.hpp), by `join<SharedMemory>` (join.hpp) for processes that a launcher has
/// started, or from a world that `join_shared_memory` (transport/shared_memory/join.hpp) has made.
/// On its own it is a world of one.
///
/// At most 1,024 ranks, and 16,384 groups at the same time. Errors: refused if memory, addresses or
/// open files are exhausted.
class SharedMemory : public detail::SharedMemoryEndpoint<detail::SharedMemoryWorld> {
public:
    static constexpr std::string_view name = "shared_memory";
    using World = detail::SharedMemoryWorld;

    using SharedMemoryEndpoint::SharedMemoryEndpoint;

    /// The world of processes that share this control plane, which then belongs to the world: the
    /// job's first fault becomes the world's and vice versa, and a timeout's cause is looked for.
    /// Collective. Defined in shared_memory/join.hpp.
    template <control_plane Control>
    [[nodiscard]] static SharedMemory join(Control control, nanoseconds deadline, std::size_t arena_bytes = 0);
};

UNISONO_CERTIFY(transport<SharedMemory>);

UNISONO_NAMESPACE_END

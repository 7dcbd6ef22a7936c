#pragma once

// Unisono, over any world.

#include "contenders/contender.hpp"

#include <unisono/collective/collective.hpp>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace bench {

/// In memory that the group allocates.
template <class World>
class Unisono {
public:
    explicit Unisono(World& world) : world_(world) {}

    std::shared_ptr<float> allocate(std::size_t count, int) {
        const auto owner = std::make_shared<unisono::Memory<float>>(world_.template allocate<float>(count));
        return {owner, owner->data()};
    }
    [[nodiscard]] int rank() const { return world_.rank(); }
    [[nodiscard]] int ranks() const { return world_.size(); }
    static std::vector<std::string> begin(const Work&) { return {"native"}; }
    static void keep(int, bool) {}
    static void end() {}

    void call(const Work& work, int, int root) {
        namespace un = unisono;
        switch (work.what) {
        case Collective::all_reduce: un::all_reduce(world_, work.in); break;
        case Collective::reduce_scatter: un::reduce_scatter(world_, work.in, work.out); break;
        case Collective::all_gather: un::all_gather(world_, work.in, work.out); break;
        case Collective::broadcast: un::broadcast(world_, work.in, root); break;
        case Collective::barrier: un::barrier(world_); break;
        case Collective::send: {
            const int next = (root + 1) % ranks();
            if (rank() == root) un::send(world_, work.in, next);
            else if (rank() == next) un::receive(world_, work.out, root);
            break;
        }
        case Collective::copy: give_up("only the floor copies");
        }
    }

private:
    World& world_;
};

/// In the program's own memory.
template <class World>
class UnisonoElsewhere : public Unisono<World> {
public:
    using Unisono<World>::Unisono;
    static std::shared_ptr<float> allocate(std::size_t count, int number) { return own_memory(count, number); }
};

template <template <class> class Peer = Unisono, class World>
void serve(World& world, const std::string& place) {
    Peer<World> peer(world);
    Contender(peer, place).serve();
}

} // namespace bench

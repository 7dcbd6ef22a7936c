// Unisono over shared memory; with the variant "own_memory" in buffers that its peers cannot see, which costs copies.

#include "contenders/contender.hpp"

#include <unisono/collective/collective.hpp>
#include <unisono/group/run_processes.hpp>
#include <unisono/transport/shared_memory.hpp>

namespace un = unisono;
using World = un::Group<un::SharedMemory>;

namespace {

class Shared {
public:
    explicit Shared(World& world) : world_(world) {}

    std::shared_ptr<float> allocate(std::size_t count, int) {
        const auto owner = std::make_shared<un::Memory<float>>(world_.allocate<float>(count));
        return {owner, owner->data()};
    }
    [[nodiscard]] int rank() const { return world_.rank(); }
    [[nodiscard]] int ranks() const { return world_.size(); }
    static std::vector<std::string> begin(const bench::Work&) { return {"native"}; }
    static void keep(int, bool) {}
    static void end() {}

    void call(const bench::Work& work, int, int root) {
        switch (work.what) {
        case bench::Collective::all_reduce: un::all_reduce(world_, work.in); break;
        case bench::Collective::reduce_scatter: un::reduce_scatter(world_, work.in, work.out); break;
        case bench::Collective::all_gather: un::all_gather(world_, work.in, work.out); break;
        case bench::Collective::broadcast: un::broadcast(world_, work.in, root); break;
        case bench::Collective::barrier: un::barrier(world_); break;
        case bench::Collective::copy: bench::give_up("only the floor copies");
        }
    }

private:
    World& world_;
};

class Own : public Shared {
public:
    using Shared::Shared;
    static std::shared_ptr<float> allocate(std::size_t count, int number) { return bench::own_memory(count, number); }
};

template <class Peer>
void serve(World& world, const std::string& place) {
    Peer peer(world);
    bench::Contender(peer, place).serve();
}

} // namespace

int main(int argc, char** argv) {
    const bench::Invitation invitation = bench::invitation(argc, argv);
    try {
        un::run<un::SharedMemory>(invitation.ranks,
                                  [&](World& world) {
                                      if (invitation.variant == "own_memory") serve<Own>(world, invitation.place);
                                      else serve<Shared>(world, invitation.place);
                                  },
                                  {.bind_to_cores = true});
    } catch (const std::exception& failed) {
        bench::give_up(failed.what());
    }
}

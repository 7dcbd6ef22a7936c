// Unisono over shared memory. The variant "own_memory" uses buffers that its peers cannot see,
// which costs copies.

#include "contenders/unisono.hpp"

#include <unisono/group/run_processes.hpp>
#include <unisono/transport/shared_memory.hpp>

namespace un = unisono;
using World = un::Group<un::SharedMemory>;

int main(int argc, char** argv) {
    const bench::Invitation invitation = bench::invitation(argc, argv);
    try {
        un::run<un::SharedMemory>(invitation.ranks,
                                  [&](World& world) {
                                      if (invitation.variant == "own_memory")
                                          bench::serve<bench::UnisonoElsewhere>(world, invitation.place);
                                      else bench::serve(world, invitation.place);
                                  },
                                  {.bind_to_cores = true});
    } catch (const std::exception& failed) {
        bench::give_up(failed.what());
    }
}

// Unisono over a network: compiled once for each transport, BENCH_TRANSPORT of the header
// BENCH_HEADER. Its ranks find each other as processes of a launcher do.

#include "contenders/unisono.hpp"

#include BENCH_HEADER

int main(int argc, char** argv) {
    const bench::Invitation invitation = bench::invitation(argc, argv);
    return bench::run_forked(invitation.ranks, [&](int rank) {
        const std::string address = bench::host_of(0, invitation.ranks).address;
        setenv("UNISONO_RANK", std::to_string(rank).c_str(), 1);
        setenv("UNISONO_WORLD_SIZE", std::to_string(invitation.ranks).c_str(), 1);
        setenv("UNISONO_FOLDER", invitation.place.c_str(), 1);
        setenv("UNISONO_HOST", address.c_str(), 1);
        try {
            auto world = unisono::join<unisono::BENCH_TRANSPORT>();
            bench::serve(world, invitation.place);
        } catch (const std::exception& failed) {
            bench::give_up(failed.what());
        }
    });
}

// Compiled in header-only mode and linked to a program in compiled mode: the program must say so
// and end.
#include <unisono/unisono.hpp>

int ranks_in_header_only_mode() {
    int ranks = 0;
    unisono::run<unisono::InProcess>(1, [&](auto& world) { ranks = world.size(); });
    return ranks;
}

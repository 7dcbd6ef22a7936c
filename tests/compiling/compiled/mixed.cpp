// In compiled mode; other_mode.cpp is not.
#include <unisono/unisono.hpp>

int ranks_in_header_only_mode();

int main() {
    int ranks = ranks_in_header_only_mode();
    unisono::run<unisono::InProcess>(1, [&](auto& world) { ranks += world.size(); });
    return ranks - 2;
}

// Hosts for a comparison: network name spaces joined by a bridge, as the tests make them. Prints "FILE ADDRESS" of each, or why there
// are none and exits with 77, and keeps them until its input ends: network_lab HOSTS

#include "namespaces/lab.hpp"

#include <cstdio>
#include <cstdlib>

int main(int argc, char** argv) {
    const int hosts = argc > 1 ? std::atoi(argv[1]) : 2;
    if (hosts < 1 || hosts > 16) return std::fputs("usage: network_lab HOSTS (1 to 16)\n", stderr), 2;
    if (const std::string why = test::Lab::why_not(); !why.empty()) return std::puts(why.c_str()), 77;
    try {
        const test::Lab lab(hosts);
        for (int host = 0; host < hosts; ++host)
            std::printf("%s %s\n", lab.space(host).path().c_str(), test::Lab::address(host).c_str());
        std::fflush(stdout);
        while (std::getchar() != EOF) {
        }
    } catch (const std::exception& failed) {
        return std::puts(failed.what()), 77;
    }
    return 0;
}

// Hosts for a comparison: network namespaces joined by a bridge, as in the tests. Prints "FILE
// ADDRESS" of each host and keeps the hosts until its input ends. If there can be none, it prints
// why and exits with 77. Usage: network_lab HOSTS

#include "together/namespaces/lab.hpp"

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

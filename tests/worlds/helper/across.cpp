// A rank of a world over hosts for the tests: across_rank TRANSPORT, started by any launcher.

#include "use.hpp"

#include <unisono/hosts.hpp>
#include <unisono/join.hpp>
#include <unisono/tcp.hpp>
#ifdef UNISONO_TEST_LIBFABRIC
#include <unisono/libfabric.hpp>
#endif

#include <string_view>

namespace {

template <class Transport>
int run() {
    using namespace std::chrono_literals;
    auto world = un::join<Transport>({.timeout = 20s, .rendezvous = {.timeout = 20s, .linger = 10s}});
    use(world);
    std::printf("rank %d of %d on %d hosts: %s\n", world.rank(), world.size(), world.hosts()->hosts(),
                wrong == 0 ? "all is well" : "wrong");
    return wrong == 0 ? 0 : 1;
}

} // namespace

int main(int argc, char** argv) {
    const std::string_view transport = argc > 1 ? argv[1] : "";
    try {
        if (transport == "hosts_tcp") return run<un::Hosts<un::Tcp>>();
#ifdef UNISONO_TEST_LIBFABRIC
        if (transport == "hosts_libfabric") return run<un::Hosts<un::Libfabric>>();
#endif
    } catch (const std::exception& failed) {
        std::printf("threw %s\n", failed.what());
        return 5;
    }
    return 64;
}

// A rank of a world over hosts for the tests: across_rank TRANSPORT, started by any launcher. Or a
// rank that chooses its transport: across_rank chosen WORD [RANK that throws].

#include "use.hpp"

#include <unisono/hosts.hpp>
#include <unisono/join.hpp>
#include <unisono/tcp.hpp>
#include <unisono/transports.hpp>
#ifdef UNISONO_TEST_LIBFABRIC
#include <unisono/libfabric.hpp>
#endif

#include <cstdlib>
#include <stdexcept>
#include <string_view>
#include <type_traits>

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

int run_chosen(std::string_view word, int thrower) {
    using namespace std::chrono_literals;
    un::run_joined<un::Transports<un::InProcess, un::SharedMemory, un::Tcp>>(
        word,
        [&](auto& world) {
            using Transport = std::remove_cvref_t<decltype(world.endpoint())>;
            std::vector<float> data(1000, static_cast<float>(world.rank() + 1));
            un::all_reduce(world, data);
            expect(all_are(data, static_cast<float>(world.size() * (world.size() + 1) / 2)), "all_reduce");
            if (world.rank() == thrower) throw std::runtime_error("its own reason");
            un::barrier(world);
            std::printf("rank %d of %d over %s\n", world.rank(), world.size(), Transport::name.data());
        },
        {.timeout = 20s, .rendezvous = {.timeout = 20s, .linger = 10s}});
    return wrong == 0 ? 0 : 1;
}

} // namespace

int main(int argc, char** argv) {
    const std::string_view transport = argc > 1 ? argv[1] : "";
    try {
        if (transport == "chosen" && argc > 2) return run_chosen(argv[2], argc > 3 ? std::atoi(argv[3]) : -1);
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

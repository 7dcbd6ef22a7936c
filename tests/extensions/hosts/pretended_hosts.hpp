// Hosts that threads of this process pretend to be on.
#pragma once

#include <unisono/hosts.hpp>
#include <unisono/tcp.hpp>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace test {

/// The host of each rank in later worlds of threads, by the world's size. By default ranks take
/// turns on two hosts, which is the hardest case.
inline std::function<int(int rank, int size)> pretended_host = [](int rank, int) { return rank % 2; };

/// Hosts<Tcp> with threads that pretend.
class PretendedHosts : public unisono::Hosts<unisono::Tcp> {
public:
    struct World : unisono::detail::HostsWorld {
        explicit World(int size) : HostsWorld(size, names(size)) {}

    private:
        static std::vector<std::string> names(int size) {
            std::vector<std::string> made;
            for (int rank = 0; rank < size; ++rank) made.push_back("host" + std::to_string(pretended_host(rank, size)));
            return made;
        }
    };
    PretendedHosts() : PretendedHosts(std::make_shared<World>(1), 0) {}
    PretendedHosts(const std::shared_ptr<World>& shared, int rank) : Hosts(shared, rank) {}
};

} // namespace test

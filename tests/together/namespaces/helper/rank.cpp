// A rank for the tests of several hosts: host_rank TRANSPORT MODE [NUMBER...]
#include "../../../support/digits_training.hpp"
#include "../../../support/split_training.hpp"
#include "say.hpp"

#include <unisono/hosts.hpp>
#include <unisono/reproducible.hpp>
#include <unisono/unisono.hpp>
#ifdef UNISONO_TEST_LIBFABRIC
#include <unisono/libfabric.hpp>
#endif

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

namespace un = unisono;
using namespace std::chrono_literals;

namespace {

/// An epoch of the digits example with sums on a grid. Its bits do not depend on where the ranks
/// are.
template <class World>
std::string bits(World& world) {
    const auto images = test::images();
    digits::Network network({digits::pixels, 16, digits::kinds}, 5);
    un::Trainer trainer{world,
                        network,
                        un::DistributedSampler{.shuffle = true, .seed = 5},
                        un::BySamples{},
                        un::Sgd{.learning_rate = 0.1, .momentum = 0.9},
                        un::NativeReducer{},
                        un::Replicas{.count = 4},
                        un::Reproducible{}};
    trainer.fit(images.train.data(), {.epochs = 1, .batch_size = 16, .progress = false});
    trainer.verify_replicas();
    std::uint64_t hash = 0xcbf29ce484222325u; // FNV-1a
    for (const auto span : network.parameters()) {
        for (const float each : span) hash = (hash ^ std::bit_cast<std::uint32_t>(each)) * 0x100000001b3u;
    }
    return "bits " + std::to_string(hash);
}

template <class World>
int use(World& world, const std::string& mode, const std::vector<int>& numbers) {
    const auto count = static_cast<std::size_t>(numbers.empty() ? 50'000 : numbers[0]);
    std::vector<float> data(count);
    const auto sum = [&] {
        std::fill(data.begin(), data.end(), 1.0f);
        un::all_reduce(world, data);
        if (data.front() != static_cast<float>(world.size()) || data.back() != data.front())
            throw std::runtime_error("wrong sum");
    };
    if (mode == "train") {
        say(bits(world));
    } else if (mode == "split") { // REPLICAS STAGES
        say("bits " + std::to_string(test::trained_in_parts(world, test::images(), numbers.at(0), numbers.at(1))));
    } else if (mode == "sum") { // COUNT TIMES
        for (int i = 0; i < numbers.at(1); ++i) sum();
        say("summed");
    } else if (mode == "hosts") {
        std::string text = "hosts";
        if (const un::HostMap* const hosts = world.hosts()) {
            for (int rank = 0; rank < world.size(); ++rank) text += " " + std::to_string(hosts->host_of(rank));
        }
        sum();
        say(text);
    } else if (mode == "loop") { // COUNT MILLISECONDS: until all agree that this time has passed
        const auto until = un::steady_now() + numbers.at(1) * un::nanoseconds{1'000'000};
        for (int i = 0;; ++i) {
            sum();
            if (i == 3) say("ready");
            if (i % 8 != 7) continue;
            std::vector<int> over{un::steady_now() >= until ? 1 : 0};
            un::all_reduce(world, over, un::Max{});
            if (over[0] != 0) break;
        }
        say("all is well");
    } else {
        return 64;
    }
    return 0;
}

template <class Transport>
int run(const std::string& mode, const std::vector<int>& numbers) {
    const char* const seconds = std::getenv("TEST_TIMEOUT_S");
    const auto timeout = std::chrono::seconds(seconds != nullptr ? std::atoi(seconds) : 30);
    const un::JoinOptions options{
        .timeout = timeout, .rendezvous = {.timeout = std::max<std::chrono::nanoseconds>(timeout, 5s), .linger = 10s}};
    auto world = un::join<Transport>(options);
    return use(world, mode, numbers);
}

int run(const std::string& transport, const std::string& mode, const std::vector<int>& numbers) {
    if (transport == "tcp") return run<un::Tcp>(mode, numbers);
    if (transport == "hosts") return run<un::Hosts<un::Tcp>>(mode, numbers);
#ifdef UNISONO_TEST_LIBFABRIC
    if (transport == "libfabric") return run<un::Libfabric>(mode, numbers);
    if (transport == "hosts_libfabric") return run<un::Hosts<un::Libfabric>>(mode, numbers);
#endif
    if (transport == "alone") { // a world of one
        un::Group<un::InProcess> world;
        return use(world, mode, numbers);
    }
    return 64;
}

} // namespace

int main(int argc, char** argv) {
    std::vector<int> numbers;
    for (int i = 3; i < argc; ++i) numbers.push_back(std::atoi(argv[i]));
    try {
        return run(argc > 1 ? argv[1] : "", argc > 2 ? argv[2] : "", numbers);
    } catch (const un::error& failed) {
        say(un::concat({"fault ", un::name_of(failed.code()), " peer ", failed.peer(), ": ", failed.what()}));
        return 1;
    } catch (const std::exception& failed) {
        say(std::string("threw ") + failed.what());
        return 5;
    }
}

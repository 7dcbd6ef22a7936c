// A rank of an elastic world, for the tests of several hosts:
// elastic_rank TRANSPORT PATIENCE_MS GIVE_UP_MS TRUST_RESETS
// It says each tenth update, and at its end the members of its last world. If there are other
// ranks, it waits for a while after update 20 until the world changes.
#include <unisono/elastic.hpp>
#include <unisono/hosts.hpp>
#include <unisono/reproducible.hpp>
#include <unisono/unisono.hpp>

#include "../../../support/linear.hpp"
#include "say.hpp"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

namespace un = unisono;
using namespace std::chrono_literals;

namespace {

template <class Transport>
int run(int patience_ms, int give_up_ms, bool trust_resets) {
    const un::ElasticOptions options{.patience = std::chrono::milliseconds(patience_ms),
                                     .give_up = std::chrono::milliseconds(give_up_ms),
                                     .trust_resets = trust_resets,
                                     .join = {.timeout = 1s, .rendezvous = {.timeout = 20s, .linger = 5s}}};
    auto world = un::join<un::Elastic<Transport>>(options);
    const std::vector<float> values = un::torch_rand(3, std::size_t{240} * 8);
    test::Linear model; // each row has a one, so the bits of the result do not depend on the ranks
    un::Trainer trainer{world, model, un::Replicas{.count = 4}, un::Reproducible{}, un::AdamW{.learning_rate = 0.003}};
    trainer.fit(un::RowData<float>(values, 8), {.epochs = 6, .batch_size = 4, .seed = 1, .progress = false},
                [&](const un::UpdateReport& report) {
                    if (report.number % 10 == 0) say("update " + std::to_string(report.number));
                    const bool waits = report.number >= 20 && report.number < 80 && world.members().size() > 1;
                    std::this_thread::sleep_for(waits && world.changes().empty() ? 100ms : 5ms);
                });
    std::uint64_t hash = 0xcbf29ce484222325u;
    for (const float each : model.weights) hash = (hash ^ std::bit_cast<std::uint32_t>(each)) * 0x100000001b3u;
    std::string members;
    for (const int member : world.members()) members += " " + std::to_string(member);
    say("bits " + std::to_string(hash) + " of members" + members);
    return 0;
}

} // namespace

int main(int argc, char** argv) {
    if (argc < 5) return 64;
    const bool hosts = argv[1] == std::string("hosts"), trusts = argv[4] == std::string("1");
    try {
        return hosts ? run<un::Hosts<un::Tcp>>(std::atoi(argv[2]), std::atoi(argv[3]), trusts)
                     : run<un::Tcp>(std::atoi(argv[2]), std::atoi(argv[3]), trusts);
    } catch (const un::error& failed) {
        say(un::concat({"fault ", un::name_of(failed.code()), ": ", failed.what()}));
        return 1;
    } catch (const std::exception& failed) {
        say(std::string("threw ") + failed.what());
        return 5;
    }
}

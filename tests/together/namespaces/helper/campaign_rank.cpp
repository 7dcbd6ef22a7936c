// A rank of campaign.py: campaign_rank TRANSPORT MODE PATIENCE_MS GIVE_UP_MS PAUSE_MS FOLDER
// MODE: replicated, checkpoints, sharded or sharded_checkpoints. FOLDER: for checkpoints.
// It says each update with its membership and the parameters' bits, and at its end "done".
#include <unisono/checkpoint.hpp>
#include <unisono/elastic.hpp>
#include <unisono/hosts.hpp>
#include <unisono/reproducible.hpp>
#include <unisono/unisono.hpp>

#include "../../../support/linear.hpp"
#include "say.hpp"

#include <bit>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

namespace un = unisono;
using namespace std::chrono_literals;

namespace {

/// With the time, which is the same for all processes of this machine.
void say_when(const std::string& text) { say(std::to_string(un::steady_now() / 1'000'000) + " ms: " + text); }

struct Arguments {
    std::string transport, mode;
    std::chrono::milliseconds patience, give_up, pause;
    std::string folder;
};

/// At the end of the training says the changes of its world.
template <class World>
class Changes {
public:
    explicit Changes(const World& world) : world_(&world) {}
    Changes(const Changes&) = delete;
    Changes& operator=(const Changes&) = delete;
    ~Changes() {
        for (const un::WorldChange& change : world_->changes()) say("change: " + change.text() + "; " + change.why);
    }

private:
    const World* world_;
};

template <class World, class Train>
void train(World& world, const Arguments& how, test::Linear& model, Train&& trainer) {
    const std::vector<float> values = un::torch_rand(3, std::size_t{240} * 8);
    const un::RowData<float> data(values, 8);
    const auto on_update = [&](const un::UpdateReport& report) {
        std::uint64_t hash = 0xcbf29ce484222325u;
        for (const float each : model.weights) hash = (hash ^ std::bit_cast<std::uint32_t>(each)) * 0x100000001b3u;
        std::string members;
        for (const int member : world.members()) members += (members.empty() ? "" : ",") + std::to_string(member);
        say_when("update " + std::to_string(report.number) + " membership " + std::to_string(world.epoch()) + " of " +
                 members + " at number " + std::to_string(world.number()) + " bits " + std::to_string(hash));
        std::this_thread::sleep_for(how.pause);
    };
    constexpr std::int64_t epochs = 9;
    if (how.mode.find("checkpoints") == std::string::npos) {
        trainer.fit(data, {.epochs = epochs, .batch_size = 4, .seed = 1, .progress = false}, on_update);
        return;
    }
    un::Checkpoints checkpoints(how.folder, {.keep = 2});
    trainer.collectively([&](auto& now) { return checkpoints.resume(now), true; });
    while (trainer.position().epoch.number() < epochs) {
        trainer.fit(data, {.epochs = 1, .batch_size = 4, .seed = 1, .progress = false}, on_update);
        trainer.collectively([&](auto& now) { return checkpoints.save(now), true; });
    }
}

template <class Transport>
void run(const Arguments& how) {
    const un::ElasticOptions options{.patience = how.patience,
                                     .give_up = how.give_up,
                                     .join = {.timeout = 1s, .rendezvous = {.timeout = 10s, .linger = 5s}}};
    auto world = un::join<un::Elastic<Transport>>(options);
    const Changes changes(world);
    test::Linear model; // each row has a one, so the bits of the result do not depend on the ranks
    const un::AdamW adam{.learning_rate = 0.003};
    if (how.mode.starts_with("sharded"))
        train(world, how, model,
              un::Trainer{world, model, un::Replicas{.count = 6}, un::Reproducible{}, adam, un::StateSharding{},
                          un::Snapshots{.every = 4}});
    else train(world, how, model, un::Trainer{world, model, un::Replicas{.count = 6}, un::Reproducible{}, adam});
    say_when("done");
}

} // namespace

int main(int argc, char** argv) {
    if (argc != 7) return 64;
    const Arguments how{.transport = argv[1],
                        .mode = argv[2],
                        .patience = std::chrono::milliseconds(std::atoi(argv[3])),
                        .give_up = std::chrono::milliseconds(std::atoi(argv[4])),
                        .pause = std::chrono::milliseconds(std::atoi(argv[5])),
                        .folder = argv[6]};
    try {
        if (how.transport == "hosts") run<un::Hosts<un::Tcp>>(how);
        else run<un::Tcp>(how);
        return 0;
    } catch (const un::error& failed) {
        say_when(un::concat({"fault ", un::name_of(failed.code()), ": ", failed.what()}));
        return 1;
    } catch (const std::exception& failed) {
        say_when(std::string("threw ") + failed.what());
        return 5;
    }
}

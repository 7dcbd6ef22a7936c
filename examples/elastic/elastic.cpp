// A training continues with the remaining ranks when ranks die, and ends with the bits of an
// undisturbed run.
//     unisono-run -n 4 --elastic 1 elastic --kill 2@20 --kill 0@40
// kills rank 2 after update 20 and rank 0 after update 40. A rank keeps its number for life.
//     unisono-run -n 4 --elastic 2:4 elastic --kill 2@20 --kill 0@40 --pause 20
// also starts a process for each rank that dies. The world takes it in as a new rank. A pause after
// each update gives the process time to join.

#include "../digits/data.hpp"
#include "../digits/network.hpp"
#include "../numbers.hpp"

#include <unisono/elastic.hpp>
#include <unisono/tcp.hpp>
#include <unisono/trainer/hashes.hpp>
#include <unisono/trainer/reproducible.hpp>
#include <unisono/unisono.hpp>

#include <CLI/CLI.hpp>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

namespace un = unisono;

namespace {

struct Death {
    int number = 0;
    std::uint64_t update = 0;
};

/// Parses text such as "2@20".
bool parse(const std::string& text, Death& death) {
    const std::size_t at = text.find('@');
    return at != std::string::npos && un::parse_number(text.substr(0, at), 0, 63, death.number) &&
           un::parse_number(text.substr(at + 1), std::uint64_t{1}, std::uint64_t{1'000'000}, death.update);
}

/// The same function works with a group and with an elastic world.
template <class World, class OnUpdate>
un::StateHash train(World& world, const digits::Split& images, OnUpdate on_update) {
    digits::Network network({digits::pixels, 16, digits::kinds});
    un::Trainer trainer{world, network, un::Replicas{.count = 6}, // a global batch of 6 x 5 images
                        un::Reproducible{},                       // the same bits on any ranks
                        un::AdamW{.learning_rate = 0.003}};
    trainer.fit(images.train.data(), {.epochs = 2, .batch_size = 5, .seed = 1, .progress = false}, on_update);
    if constexpr (requires { trainer.collectively([](auto& now) { return un::state_hash(now); }); })
        return trainer.collectively([](auto& now) { return un::state_hash(now); });
    else return un::state_hash(trainer);
}

template <class Transport>
void train_and_die(const digits::Split& images, const std::vector<Death>& deaths, std::chrono::milliseconds pause) {
    auto world = un::join<un::Elastic<Transport>>();
    const un::StateHash hash = train(world, images, [&](const un::UpdateReport& report) {
        for (const Death& death : deaths)
            if (death.number == world.number() && death.update == report.number) ::kill(::getpid(), SIGKILL);
        std::this_thread::sleep_for(pause);
    });
    if (world.rank() != 0) return;
    for (const un::WorldChange& change : world.changes()) std::puts(change.text().c_str());
    un::Group<un::InProcess> alone;
    const un::StateHash undisturbed = train(alone, images, [](const un::UpdateReport&) {});
    std::printf("ends with %d %s: %s\n", world.size(), world.size() == 1 ? "rank" : "ranks",
                un::hash_text(hash.parameters).c_str());
    std::printf("undisturbed, on one rank: %s\n", un::hash_text(undisturbed.parameters).c_str());
    std::puts(hash == undisturbed ? "one hash: the run of one rank has the same" : "two hashes");
}

} // namespace

int main(int argc, char** argv) {
    try {
        std::vector<std::string> kills;
        int pause = 0;
        bool tcp = false;
        CLI::App app{"Trains on handwritten digits while ranks die.", "elastic"};
        app.add_option("--kill", kills, "RANK@UPDATE: that rank kills its process after that update");
        app.add_option("--pause", pause, "milliseconds after each update")->check(CLI::Range(0, 1000));
        app.add_flag("--tcp", tcp, "Over sockets, instead of shared memory");
        CLI11_PARSE(app, argc, argv);
        std::vector<Death> deaths;
        for (const std::string& text : kills)
            if (!parse(text, deaths.emplace_back()))
                un::refuse_input({"--kill ", text, "; expected RANK@UPDATE, as in 2@20"});
        const digits::Split images = digits::split(digits::read(DIGITS_DATA), 357);
        if (tcp) train_and_die<un::Tcp>(images, deaths, std::chrono::milliseconds(pause));
        else train_and_die<un::SharedMemory>(images, deaths, std::chrono::milliseconds(pause));
        return 0;
    } catch (const un::training_has_ended&) { // this process was started or added too late
        return 0;
    } catch (const std::exception& failed) {
        std::fprintf(stderr, "elastic: %s\n", failed.what());
        return 2;
    }
}

// Unisono's part of the comparison of training steps: one rank's process. compare.py gives it its
// turns (lines in support/driver.hpp). The network of examples/digits, 32 images per rank, SGD with
// momentum. The variant "blocked" uses kernels as fast as those of libraries.
//
//     prepare HIDDEN     networks of 64, HIDDEN, HIDDEN and 10 units; proves that they train right
//     run WAY STEPS      {"seconds": of a step on this rank, 0 if it takes no part}
//     check              after the measurement: what is wrong, or ""
//     machine, round_trip

#include "../../examples/digits/data.hpp"
#include "blocked_network.hpp"
#include "support/driver.hpp"

#include <cmath>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

namespace {

using World = un::Group<un::SharedMemory>;
using Alone = un::Group<un::SharedMemory>; // a world of one

constexpr std::size_t rows = 32; // of a rank's batch
constexpr std::size_t cycle = 8; // different batches per rank
// Slow, so that computed values hardly change.
constexpr un::Sgd sgd{.learning_rate = 1e-4, .momentum = 0.9};

/// A network and its trainer.
template <class Network, class Group, class... Policies>
struct Training {
    Training(Group& group, std::size_t hidden, const Policies&... policies)
        : network({digits::pixels, hidden, hidden, digits::kinds}), trainer(group, placed(group), sgd, policies...) {}

    Network& placed(Group& group) {
        if (group.size() > 1) network.place_gradients_in(group);
        return network;
    }

    Network network;
    un::Trainer<Group, Network, un::Sgd, Policies...> trainer;
};

std::vector<digits::Batch> batches_of(const un::RowData<float>& data, int rank, int ranks) {
    std::vector<digits::Batch> batches;
    for (std::size_t i = 0; i < cycle; ++i) {
        std::vector<std::size_t> indices(rows);
        const std::size_t first = (i * static_cast<std::size_t>(ranks) + static_cast<std::size_t>(rank)) * rows;
        for (std::size_t row = 0; row < rows; ++row) indices[row] = (first + row) % data.size();
        batches.push_back(data.batch(indices));
    }
    return batches;
}

template <class Network>
class Rank {
public:
    Rank(World& world, const un::RowData<float>& data, const std::string& place)
        : world_(world), meeting_(world.size(), bench::common_page(place)), driver_(place, world.rank()) {
        for (int rank = 0; rank < world.size(); ++rank) batches_.push_back(batches_of(data, rank, world.size()));
    }

    void serve() {
        for (;;) {
            alarm(0);
            std::istringstream line(driver_.hear());
            alarm(240); // a peer that hangs must not outlive the comparison
            std::string verb;
            line >> verb;
            nlohmann::json answer = nlohmann::json::object();
            if (verb == "prepare") {
                std::size_t hidden = 0;
                line >> hidden;
                answer = prepare(hidden);
            } else if (verb == "run") {
                std::string way;
                int steps = 0;
                line >> way >> steps;
                answer["seconds"] = run(way, steps);
            } else if (verb == "check") {
                answer["wrong"] = check();
            } else if (verb == "machine") {
                if (me() == 0) answer["machine"] = bench::describe_machine();
            } else if (verb == "round_trip") {
                if (me() == 0) answer["round_trip_ns"] = bench::round_trip_ns(5, 2000);
            } else if (verb == "quit") {
                return;
            } else {
                bench::give_up("does not know '" + verb + "'");
            }
            driver_.say(answer.dump());
        }
    }

private:
    [[nodiscard]] int me() const { return world_.rank(); }
    /// The same on all ranks in a step: its time depends on its zeros, and lockstep waits for the
    /// slowest rank.
    [[nodiscard]] const digits::Batch& batch() { return batches_[0][next_++ % cycle]; }

    nlohmann::json prepare(std::size_t hidden) {
        sharded_.reset();
        together_.reset();
        alone_.reset();
        next_ = 0;
        alone_.emplace(none_, hidden);
        together_.emplace(world_, hidden);
        sharded_.emplace(world_, hidden, un::StateSharding{});
        const std::string wrong = compare(*together_, hidden) + compare(*sharded_, hidden);
        const std::size_t parameters = alone_->network.values().size();
        return {{"parameters", parameters},
                {"ways", {"one", "floor", "lockstep", "together", "sharded"}},
                {"wrong", wrong}};
    }

    /// A few updates on all ranks equal those of one rank that has all their batches, to the bit.
    template <class Several>
    std::string compare(Several& several, std::size_t hidden) {
        Training<Network, World> one(none_, hidden);
        for (std::size_t step = 0; step < 3; ++step) {
            several.trainer.step(batches_[static_cast<std::size_t>(me())][step]);
            if (me() != 0) continue;
            if (world_.size() == 2) one.trainer.step(batches_[0][step], batches_[1][step]);
            else one.trainer.step(batches_[0][step]);
        }
        several.trainer.verify_replicas();
        const auto expected = one.network.values();
        const bool same = std::memcmp(expected.data(), several.network.values().data(), expected.size_bytes()) == 0;
        return me() != 0 || same ? "" : "the ranks' weights are not those of one rank with all their batches";
    }

    /// Seconds of a step, on each rank by its own clock.
    double run(const std::string& way, int steps) {
        const auto on = [](auto& training) {
            return [&training](const auto& batch) { return training.trainer.step(batch).loss; };
        };
        if (way == "one") return me() == 0 ? time(on(*alone_), steps, false) : 0;
        if (way == "floor") return time(on(*alone_), steps, true);
        if (way == "lockstep")
            return time(
                [this](const auto& batch) {
                    const double loss = alone_->trainer.step(batch).loss;
                    un::barrier(world_);
                    return loss;
                },
                steps, true);
        if (way == "together") return time(on(*together_), steps, true);
        if (way == "sharded") return time(on(*sharded_), steps, true);
        bench::give_up("does not know the way '" + way + "'");
    }

    template <class Step>
    double time(Step step, int steps, bool all) {
        double loss = step(batch()); // for the caches, which held another way's memory
        if (all) meeting_.wait(me());
        const double begin = bench::now_s();
        for (int i = 0; i < steps; ++i) loss += step(batch());
        const double end = bench::now_s();
        if (!std::isfinite(loss) || loss <= 0) wrong_ = "the loss is " + std::to_string(loss);
        return (end - begin) / steps;
    }

    std::string check() {
        together_->trainer.verify_replicas();
        sharded_->trainer.verify_replicas();
        return wrong_;
    }

    World& world_;
    World none_; ///< of one
    bench::Meeting meeting_;
    bench::Driver driver_;
    std::vector<std::vector<digits::Batch>> batches_; ///< by rank
    std::size_t next_ = 0;
    std::optional<Training<Network, World>> alone_;
    std::optional<Training<Network, World>> together_;
    std::optional<Training<Network, World, un::StateSharding>> sharded_;
    std::string wrong_;
};

} // namespace

int main(int argc, char** argv) {
    const bench::Invitation invitation = bench::invitation(argc, argv);
    try {
        const digits::Images images = digits::read(DIGITS_DATA);
        const auto data = images.data();
        un::run<un::SharedMemory>(invitation.ranks,
                                  [&](World& world) {
                                      if (invitation.variant == "blocked")
                                          Rank<bench::BlockedNetwork>(world, data, invitation.place).serve();
                                      else Rank<digits::Network>(world, data, invitation.place).serve();
                                  },
                                  {.bind_to_cores = true});
    } catch (const std::exception& failed) {
        bench::give_up(failed.what());
    }
}

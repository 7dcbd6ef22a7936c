#include "../network.hpp"

#include "unisono/group/run.hpp"
#include "unisono/transport/in_process.hpp"

#include <map>

namespace unisono_test {

std::vector<Outcome> train(const Case& how, const std::function<void(int, const std::string&)>& after_save) {
    std::vector<Outcome> all(static_cast<std::size_t>(how.ranks));
    un::run<un::InProcess>(
        how.ranks,
        [&](auto& world) { all[static_cast<std::size_t>(world.rank())] = train_rank(world, how, after_save); },
        {.timeout = std::chrono::seconds(30)});
    return all;
}

const std::vector<un::StateHash>& undisturbed(Which optimizer) {
    static std::map<Which, std::vector<un::StateHash>> known;
    auto& one = known[optimizer];
    if (one.empty()) one = train({.optimizer = optimizer})[0].history;
    return one;
}

} // namespace unisono_test

// Predicts how long a collective takes on a cluster. Runs it in virtual time, and prints one line
// for each family of schedules.
//
//     simulate --ranks 1024 --bytes 100000000 --latency 2e-6 --bandwidth 12.5e9
#include "../numbers.hpp"

#include <unisono/collective/all_reduce.hpp>
#include <unisono/collective/exchange.hpp>
#include <unisono/collective/rooted.hpp>
#include <unisono/core/text.hpp>
#include <unisono/simulate.hpp>

#include <CLI/CLI.hpp>

#include <iomanip>
#include <iostream>
#include <string>
#include <vector>

namespace un = unisono;
using Group = un::Group<un::Simulated>;

namespace {

struct Question {
    std::string collective = "all_reduce", family = "all";
    int ranks = 64;
    std::size_t bytes = 1'000'000, chunk_bytes = 0;
    un::SimulationOptions options;
};

/// Prints the line of one family. Returns false if it has no schedule for the collective.
template <un::Collective What, class Family>
bool simulate(const Question& question, Family family) {
    if constexpr (un::schedule::offers<Family, What>) {
        if constexpr (requires { family.chunk_bytes; }) family.chunk_bytes = question.chunk_bytes;
        un::Simulation simulation(question.ranks, question.options);
        std::vector<std::vector<std::byte>> data(static_cast<std::size_t>(question.ranks),
                                                 std::vector<std::byte>(question.bytes));
        simulation.run([&](Group& group) {
            auto& mine = data[static_cast<std::size_t>(group.rank())];
            const std::span values(reinterpret_cast<unsigned char*>(mine.data()), mine.size());
            if constexpr (What == un::Collective::all_reduce) {
                return un::start_all_reduce(group, values, un::Max{}, family);
            } else if constexpr (What == un::Collective::broadcast) {
                return un::start_broadcast(group, values, 0, family);
            } else if constexpr (What == un::Collective::reduce) {
                return un::start_reduce(group, values, values, 0, un::Max{}, family);
            } else {
                return un::start_barrier(group, family);
            }
        });
        const un::SimulationReport report = simulation.report();
        std::cout << std::left << std::setw(18) << Family::name << std::right << std::setw(14)
                  << un::fixed_text(static_cast<double>(report.time) * 1e-6, 6) << " ms" << std::setw(14)
                  << un::count_text(report.messages) << " messages" << std::setw(22) << un::count_text(report.bytes)
                  << " bytes\n";
        return true;
    } else {
        return false;
    }
}

template <un::Collective What, class... Families>
bool simulate_each(const Question& question, const Families&... families) {
    bool any = false;
    ((any = ((question.family == "all" || question.family == Families::name) && simulate<What>(question, families)) ||
            any),
     ...);
    return any;
}

template <un::Collective What>
bool simulate_families(const Question& question) {
    return simulate_each<What>(question, un::RingSchedule{}, un::TreeSchedule{}, un::HalvingDoublingSchedule{},
                               un::DirectSchedule{});
}

} // namespace

int main(int argc, char** argv) {
    Question question;
    double latency = 1e-6, jitter = 0.0;
    CLI::App app{"Runs a collective in virtual time and prints how long it takes, by each family of schedules"};
    app.add_option("-c,--collective", question.collective)
        ->check(CLI::IsMember({"all_reduce", "broadcast", "reduce", "barrier"}))
        ->capture_default_str();
    app.add_option("-f,--family", question.family)
        ->check(CLI::IsMember({"all", "ring", "tree", "halving_doubling", "direct"}))
        ->capture_default_str();
    app.add_option("-n,--ranks", question.ranks, "number of ranks")->check(numbers::at_least(1))->capture_default_str();
    app.add_option("-b,--bytes", question.bytes, "bytes on each rank")
        ->check(numbers::at_least(std::size_t{0}))
        ->capture_default_str();
    app.add_option("--chunk-bytes", question.chunk_bytes, "cut the data into chunks of about this size; 0: do not")
        ->check(numbers::at_least(std::size_t{0}))
        ->capture_default_str();
    app.add_option("-l,--latency", latency, "of each link, in seconds")
        ->check(numbers::from(0.0, 1e5))
        ->capture_default_str();
    app.add_option("-w,--bandwidth", question.options.link.bytes_per_second, "of each rank's network, in bytes/s")
        ->check(numbers::at_least(1.0))
        ->capture_default_str();
    app.add_option("-j,--jitter", jitter, "each message is late by up to so many seconds")
        ->check(numbers::from(0.0, 1e5))
        ->capture_default_str();
    app.add_option("-s,--seed", question.options.seed, "decides the jitter")
        ->check(numbers::at_least(std::uint64_t{0}))
        ->capture_default_str();
    CLI11_PARSE(app, argc, argv);

    question.options.link.latency_ns = static_cast<un::nanoseconds>(latency * 1e9 + 0.5);
    question.options.jitter_ns = static_cast<un::nanoseconds>(jitter * 1e9 + 0.5);
    question.options.reorder = true;
    try {
        std::cout << question.collective << " of " << un::count_text(question.bytes) << " bytes on " << question.ranks
                  << " ranks, latency " << question.options.link.latency_ns << " ns, "
                  << question.options.link.bytes_per_second << " bytes/s, seed " << question.options.seed << "\n";
        bool any = false;
        if (question.collective == "all_reduce") any = simulate_families<un::Collective::all_reduce>(question);
        else if (question.collective == "broadcast") any = simulate_families<un::Collective::broadcast>(question);
        else if (question.collective == "reduce") any = simulate_families<un::Collective::reduce>(question);
        else any = simulate_families<un::Collective::barrier>(question);
        if (!any) {
            std::cerr << "simulate: the family " << question.family << " has no " << question.collective << "\n";
            return 2;
        }
    } catch (const un::error& failed) {
        std::cerr << failed.what() << "\n";
        return 1;
    }
    return 0;
}

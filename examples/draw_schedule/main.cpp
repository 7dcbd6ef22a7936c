// Proves a collective schedule, then draws it as SVG.
//
//     draw_schedule --family ring --collective all_reduce --ranks 6 --output picture.svg
#include "../numbers.hpp"
#include "unisono/laboratory.hpp"
#include "unisono/schedule/families.hpp"
#include "unisono/schedule/hierarchical.hpp"

#include <CLI/CLI.hpp>

#include <fstream>
#include <iostream>
#include <map>
#include <string>

namespace un = unisono;

namespace {

/// Two ranks per host.
struct PairsOnHosts : un::HierarchicalSchedule {
    PairsOnHosts() : HierarchicalSchedule{.ranks_per_host = 2} {}
};

struct Picture {
    std::string svg;
    un::schedule::Report report;
    un::schedule::Cost cost; ///< of rank 0
};

using Painter = Picture (*)(int ranks, int root);
using Menu = std::map<std::string, Painter>; ///< by "family collective"

template <class Family, un::Collective What>
void add(Menu& menu) {
    menu[std::string(Family::name) + " " + std::string(un::name_of(What))] = [](int ranks, int root) {
        const auto make = [](const un::schedule::Shape& shape) {
            return un::schedule::schedule_of<What>(Family{}, shape);
        };
        return Picture{un::schedule::draw(ranks, root, make), un::schedule::verify(ranks, root, make),
                       un::schedule::cost_of_rank(make({ranks, 0, root}))};
    };
}

template <class... Families>
Menu make_menu() {
    Menu menu;
    (un::schedule::for_each_collective<Families>([&](auto what) { add<Families, what>(menu); }), ...);
    return menu;
}

} // namespace

int main(int argc, char** argv) {
    const Menu menu = make_menu<un::RingSchedule, un::TreeSchedule, un::HalvingDoublingSchedule, un::DirectSchedule,
                                un::MappedSchedule, un::StagedSchedule, PairsOnHosts>();
    std::string family = "ring", collective = "all_reduce", output = "-";
    int ranks = 4, root = 0;
    bool list = false;

    CLI::App app{"Draws a collective schedule as SVG, after proving it"};
    app.add_option("-f,--family", family,
                   "ring, tree, halving_doubling, direct, mapped, staged or hierarchical (two ranks a host)")
        ->capture_default_str();
    app.add_option("-c,--collective", collective, "all_reduce, broadcast, ...")->capture_default_str();
    app.add_option("-n,--ranks", ranks, "number of ranks")->check(numbers::from(1, 4096))->capture_default_str();
    app.add_option("-r,--root", root, "root, where there is one")->check(numbers::from(0, 4095))->capture_default_str();
    app.add_option("-o,--output", output, "file to write; - for standard output")->capture_default_str();
    app.add_flag("-l,--list", list, "list what can be drawn");
    CLI11_PARSE(app, argc, argv);

    if (list) {
        for (const auto& [name, painter] : menu) std::cout << name << "\n";
        return 0;
    }
    const auto found = menu.find(family + " " + collective);
    if (found == menu.end()) {
        std::cerr << "there is no " << collective << " in the family " << family << "; --list says what there is\n";
        return 2;
    }
    if (ranks > 256) {
        std::cerr << "--ranks is " << ranks << ", expected at most 256: the picture could not be read\n";
        return 2;
    }
    try {
        const Picture picture = found->second(ranks, root);
        for (const auto& violation : picture.report.violations) std::cerr << violation << "\n";
        if (output == "-") std::cout << picture.svg;
        else if (!(std::ofstream{output} << picture.svg << std::flush)) {
            std::cerr << "cannot write " << output << "\n";
            return 1;
        }
        std::cerr << found->first << " on " << ranks << " ranks: " << (picture.report.proven() ? "proven" : "WRONG")
                  << "; rank 0 sends " << picture.cost.messages << " messages with " << picture.cost.blocks_sent
                  << " blocks and combines " << picture.cost.blocks_combined << " in " << picture.cost.rounds
                  << " rounds\n";
        return picture.report.proven() ? 0 : 1;
    } catch (const un::error& e) {
        std::cerr << e.what() << "\n";
        return 2;
    }
}

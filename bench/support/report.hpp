#pragma once

// One table for people, one JSON file for programs, and a benchmark's command line.

#include "machine.hpp"
#include "series.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace bench {

struct Options {
    bool quick = false; ///< few repetitions and small sizes: does it run?
    std::string json;   ///< a file to write, or empty
    std::string only;   ///< a part of the benchmark
};

inline Options parse(int argc, char** argv) {
    Options options;
    for (int i = 1; i < argc; ++i) {
        if (std::strcmp(argv[i], "--quick") == 0) options.quick = true;
        else if (std::strcmp(argv[i], "--json") == 0 && i + 1 < argc) options.json = argv[++i];
        else if (std::strcmp(argv[i], "--only") == 0 && i + 1 < argc) options.only = argv[++i];
        else {
            std::fprintf(stderr, "usage: %s [--quick] [--only PART] [--json FILE]; found '%s'\n", argv[0], argv[i]);
            std::exit(2);
        }
    }
    return options;
}

inline std::string in_words(std::size_t bytes) {
    if (bytes >= 1048576 && bytes % 1048576 == 0) return std::to_string(bytes / 1048576) + " MiB";
    if (bytes >= 1024 && bytes % 1024 == 0) return std::to_string(bytes / 1024) + " KiB";
    return std::to_string(bytes) + " B";
}

inline std::string format(const char* pattern, double value) {
    char text[64];
    std::snprintf(text, sizeof text, pattern, value);
    return text;
}

/// The report of one benchmark.
class Report {
public:
    Report(std::string name, const Options& options) : options_(options) {
        json_ = {{"benchmark", name},
                 {"quick", options.quick},
                 {"machine", describe_machine()},
                 {"cases", nlohmann::json::array()}};
        const auto& machine = json_["machine"];
        std::printf("== %s ==\n%s, %d cores, %s, %s; core to core and back %.0f ns; load %.1f%s\n", name.c_str(),
                    machine["processor"].get<std::string>().c_str(), machine["cores"].get<int>(),
                    machine["system"].get<std::string>().c_str(), machine["compiler"].get<std::string>().c_str(),
                    machine["round_trip_ns"].get<double>(), machine["load"].get<double>(),
                    machine["real_time_priority"].get<bool>() ? "; real-time priority" : "");
        std::fflush(stdout);
    }
    ~Report() {
        json_["machine"]["round_trip_ns_at_end"] = round_trip_ns();
        std::printf("core to core and back at the end: %.0f ns\n\n",
                    json_["machine"]["round_trip_ns_at_end"].get<double>());
        if (!options_.json.empty()) std::ofstream(options_.json) << json_.dump(1) << '\n';
    }
    Report(const Report&) = delete;
    Report& operator=(const Report&) = delete;

    void header(const std::vector<std::string>& columns) {
        std::printf("\n");
        group_ = columns.front();
        row(columns);
    }
    void row(const std::vector<std::string>& cells) {
        for (std::size_t i = 0; i < cells.size(); ++i) std::printf(i == 0 ? "%-22s" : " %13s", cells[i].c_str());
        std::printf("\n");
        std::fflush(stdout);
    }

    /// A case of another form, for the file.
    void add(nlohmann::json entry) { json_["cases"].push_back(std::move(entry)); }

    /// One case: Unisono compared with the best of the others, with the project's goal.
    void compare(const std::string& what, const Series& ours, const std::vector<Series>& others, double goal,
                 const std::string& goal_unit = "x") {
        const Series* best = &others.front();
        for (const Series& other : others) {
            if (other.median() < best->median()) best = &other;
        }
        const double ratio = ours.median() / best->median();
        const double quiet = ours.best_quarter() / best->best_quarter();
        const double paired = paired_ratio(ours, *best);
        const double more_us = (ours.median() - best->median()) * 1e6;
        const double quiet_more_us = (ours.best_quarter() - best->best_quarter()) * 1e6;
        const bool by_ratio = goal_unit == "x";
        const std::string aim = goal <= 0 ? "" : by_ratio ? format("%.2f x", goal) : format("+%.2f us", goal);
        std::vector<std::string> cells{what, format("%.3f", ours.median() * 1e6),
                                       format("%.0f %%", ours.spread() * 100)};
        for (const Series& other : others) cells.push_back(format("%.3f", other.median() * 1e6));
        cells.push_back(format("%.2f x", ratio));
        cells.push_back(format("%.2f x", paired));
        cells.push_back(format("%.2f x", quiet));
        cells.push_back(format("%+.3f us", more_us));
        cells.push_back(aim);
        row(cells);
        nlohmann::json entry{{"group", group_},
                             {"case", what},
                             {"ours", ours.json()},
                             {"against", best->name},
                             {"ratio", ratio},
                             {"paired_ratio", paired},
                             {"more_us", more_us},
                             {"best_quarter_ratio", quiet},
                             {"best_quarter_more_us", quiet_more_us}};
        if (goal > 0) entry["goal"] = {{"at_most", goal}, {"unit", goal_unit}};
        for (const Series& other : others) entry["others"].push_back(other.json());
        json_["cases"].push_back(std::move(entry));
    }

private:
    Options options_;
    std::string group_; ///< the first column's name in the last header
    nlohmann::json json_;
};

} // namespace bench

// The same bits on any cluster: one training on every number of ranks, by every reducer, over
// threads and processes, with buckets of several sizes. With sums on a grid, all runs end with one
// hash of parameters and optimizer state. With ordinary float sums they do not. `reproducible
// --short` tries fewer cases. The exit status is 1 if a result differs from this.
#include "training.hpp"

#include <cstdio>
#include <cstring>
#include <exception>
#include <map>
#include <string>

namespace {

using namespace example;

struct Tally {
    std::map<std::string, int> hashes = {}; ///< how often each came out
    int runs = 0;
    void add(const Outcome& one) {
        ++runs;
        ++hashes[un::hash_text(one.hash.parameters ^ (one.hash.optimizer * 31))];
    }
    [[nodiscard]] std::string text() const {
        if (hashes.size() == 1) return un::concat({"1 hash, ", hashes.begin()->first});
        return un::concat({hashes.size(), " hashes"});
    }
};

/// Visits each way in which this training may be hosted.
template <class Visit>
void every_way(Case base, bool brief, Visit visit) {
    std::vector<un::Buckets> sizes = {{}, {1, 1}, {256, 100}};
    if (brief) sizes.resize(2);
    for (base.ranks = 1; base.ranks <= base.replicas; ++base.ranks) {
        for (const Reducer reducer : reducers) {
            if (!base.reproducible && reducer != Reducer::native && reducer != Reducer::ring) continue;
            base.reducer = reducer;
            for (const un::Buckets& buckets : sizes) {
                base.buckets = buckets;
                if (brief && buckets == sizes.back() && base.ranks % 2 != 0) continue;
                visit(base);
            }
        }
    }
}

} // namespace

int main(int argc, char** argv) try {
    const bool brief = argc == 2 && std::strcmp(argv[1], "--short") == 0;
    if (argc > 2 || (argc == 2 && !brief)) {
        std::fprintf(stderr, "usage: %s [--short]\n", argv[0]);
        return 2;
    }
    un::Table table({"replicas", "order", "optimizer", "loss", "runs", "on a grid", "runs", "float sums"});
    bool good = true;
    for (const int replicas : brief ? std::vector<int>{6} : std::vector<int>{8, 6}) {
        for (const bool shuffle : {true, false}) {
            for (const bool adam : {false, true}) {
                Tally grid;
                Tally plain;
                double loss = 0;
                for (const bool reproducible : {true, false}) {
                    const Case base{
                        .replicas = replicas, .shuffle = shuffle, .adam = adam, .reproducible = reproducible};
                    every_way(base, brief, [&](const Case& how) {
                        for (const bool processes : {false, true}) {
                            const Outcome one = processes ? train_on_processes(how) : train_on_threads(how);
                            (reproducible ? grid : plain).add(one);
                            if (reproducible) loss = one.loss;
                        }
                    });
                }
                good = good && grid.hashes.size() == 1 && plain.hashes.size() > 1;
                table.row({std::to_string(replicas), shuffle ? "shuffled" : "as stored",
                           adam ? "AdamW" : "Sgd, clipped", un::fixed_text(loss, 6), std::to_string(grid.runs),
                           grid.text(), std::to_string(plain.runs), plain.text()});
            }
        }
    }
    std::printf(
        "Ranks 1 to as many as replicas; %zu reducers (float sums: 2); threads and processes; buckets of %d sizes.\n%s",
        reducers.size(), brief ? 2 : 3, table.text(0).c_str());
    std::printf("%s\n", good ? "One hash each on a grid; float sums differ." : "NOT as it should be.");
    return good ? 0 : 1;
} catch (const std::exception& failed) {
    std::fprintf(stderr, "reproducible: %s\n", failed.what());
    return 2;
}

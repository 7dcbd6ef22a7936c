#pragma once

// Shared by all contenders: the collectives and their expected results, the timing of a call, and
// the dialogue with compare.py, which gives the contenders their turns. Only `call` differs between
// them.
//
// A contender's ranks are processes that live as long as the comparison, and sleep in a read
// between their turns. Each rank sends "hello RANK", and then answers each of these lines with one
// line:
//
//     prepare COLLECTIVE BYTES       makes the buffers, warms up;
//                                    {"ways": [{"name":, "seconds":, "wrong":}, ...]}
//     keep WAY...                    releases what the other ways hold
//     run WAY BATCH REPETITIONS      measures; {"seconds": [per repetition], "wrong": the first
//                                    wrong result of this rank, or ""}
//     drop                           releases the buffers
//     machine, round_trip            what the figures depend on; rank 0 answers
//     quit

#include "contenders/hosts.hpp"
#include "contenders/work.hpp"
#include "support/driver.hpp"
#include "support/meeting.hpp"
#include "support/memory.hpp"

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace bench {

/// Memory of the rank's own, as in a program whose memory does not come from its communication
/// library.
inline std::shared_ptr<float> own_memory(std::size_t count, int number) {
    const auto owner = std::make_shared<Floats>(count, number);
    return {owner, owner->data()};
}

/// One rank's part. `Peer` offers rank(), ranks(), allocate(count, number) of a shared pointer;
/// begin(work), which returns the names of its ways to do it; keep(way, wanted); call(work, way,
/// root); end().
template <class Peer>
class Contender {
public:
    Contender(Peer& peer, const std::string& place)
        : peer_(peer), me_(peer.rank()), ranks_(peer.ranks()), meeting_(peer.ranks(), common_page(place)),
          driver_(place, peer.rank()) {}

    void serve() {
        for (;;) {
            alarm(0);
            std::istringstream line(driver_.hear());
            alarm(240); // a peer that hangs must not outlive the comparison
            std::string verb;
            line >> verb;
            nlohmann::json answer = nlohmann::json::object();
            if (verb == "prepare") {
                std::string name;
                std::size_t bytes = 0;
                line >> name >> bytes;
                answer = prepare(name, bytes);
            } else if (verb == "run") {
                int way = 0;
                std::uint32_t batch = 0;
                int repetitions = 0;
                line >> way >> batch >> repetitions;
                answer["seconds"] = run(way, batch, repetitions);
                answer["wrong"] = std::exchange(wrong_, {});
            } else if (verb == "keep") {
                std::vector<bool> wanted(static_cast<std::size_t>(ways_));
                for (std::size_t way = 0; line >> way;) wanted.at(way) = true;
                for (int way = 0; way < ways_; ++way) peer_.keep(way, wanted[static_cast<std::size_t>(way)]);
            } else if (verb == "drop") {
                drop();
            } else if (verb == "machine") {
                if (me_ == 0) answer["machine"] = describe_machine();
            } else if (verb == "round_trip") {
                if (me_ == 0) answer["round_trip_ns"] = round_trip_ns(5, 2000);
            } else if (verb == "quit") {
                drop();
                return;
            } else {
                give_up("does not know '" + verb + "'");
            }
            driver_.say(answer.dump());
        }
    }

private:
    nlohmann::json prepare(const std::string& name, std::size_t bytes) {
        drop();
        const auto* const known = std::find_if(std::begin(collectives), std::end(collectives),
                                               [&](const auto& pair) { return name == pair.second; });
        if (known == std::end(collectives)) give_up("does not know the collective '" + name + "'");
        work_ = {};
        work_.what = known->first;
        work_.count = bytes / sizeof(float);
        work_.block = work_.count / static_cast<std::size_t>(ranks_);
        const Shape shape = shape_of(work_, me_);
        in_ = peer_.allocate(shape.in, 1 + me_);
        work_.in = {in_.get(), shape.in};
        work_.out = work_.in;
        if (shape.out != 0) {
            out_ = peer_.allocate(shape.out, 6 + me_);
            work_.out = {out_.get(), shape.out};
        }
        const std::vector<std::string> names = peer_.begin(work_);
        ways_ = static_cast<int>(names.size());
        nlohmann::json ways = nlohmann::json::array();
        double best = 1e9;
        for (int way = 0; way < ways_; ++way) {
            const double seconds = probe(way, name + names[static_cast<std::size_t>(way)], best);
            best = std::min(best, seconds);
            ways.push_back({{"name", names[static_cast<std::size_t>(way)]},
                            {"seconds", seconds},
                            {"wrong", std::exchange(wrong_, {})}});
        }
        return {{"ways", ways}};
    }

    /// About how long a way takes. The result is the same on every rank, so all ranks try equally
    /// often. A way that is far behind is not tried again, neither here nor with larger sizes: over
    /// TCP a way may take seconds where another takes milliseconds.
    double probe(int way, const std::string& name, double best) {
        if (hopeless_.contains(name)) return 1e9;
        double seconds = run(way, 1, 1).front();
        const auto behind = [&] { return seconds > 0.05 && seconds > 4 * best; };
        if (seconds < 0.1 || (behind() && seconds < 1)) seconds = std::min(seconds, run(way, 1, 1).front());
        if (seconds < 0.1 && !behind()) {
            const auto more = run(way, 1, std::clamp(static_cast<int>(1e-3 / seconds), 1, 50));
            seconds = std::min(seconds, *std::min_element(more.begin(), more.end()));
        }
        if (behind()) hopeless_.insert(name);
        return seconds;
    }

    void drop() {
        if (ways_ == 0) return;
        peer_.end();
        ways_ = 0;
        in_.reset();
        out_.reset();
    }

    /// Batches of many calls are for times that the clock cannot resolve. There a rank fills its
    /// input with one value before each call. The first call is not counted, unless it is the only
    /// one.
    std::vector<double> run(int way, std::uint32_t batch, int repetitions) {
        std::vector<double> seconds;
        if (work_.what == Collective::barrier) check_barrier(way);
        for (int repetition = batch > 1 ? -1 : 0; repetition < repetitions; ++repetition) {
            const double once = work_.what == Collective::barrier ? time_barriers(way, batch)
                                : batch > 1                       ? time_batch(way, batch)
                                                                  : time_one(way);
            if (repetition >= 0) seconds.push_back(once);
        }
        return seconds;
    }

    double time_one(int way) {
        const int root = static_cast<int>(++turn_ % static_cast<std::uint32_t>(ranks_));
        const std::uint32_t repetition = turn_ % 1021u;
        rewrite(work_.in, me_, repetition + static_cast<std::uint32_t>(shape_of(work_, me_).in_begin % 1021u));
        const double once = meeting_.time_together(me_, [&] { peer_.call(work_, way, root); });
        check(root, repetition);
        return once;
    }

    double time_batch(int way, std::uint32_t batch) {
        std::size_t wrong = 0;
        std::uint32_t first = turn_;
        const double all = meeting_.time_together(me_, [&] {
            for (std::uint32_t i = 0; i < batch; ++i) {
                const int root = static_cast<int>(++turn_ % static_cast<std::uint32_t>(ranks_));
                const auto value = static_cast<float>(turn_ % 1021u * 8u);
                std::fill(work_.in.begin(), work_.in.end(), value + static_cast<float>(me_));
                peer_.call(work_, way, root);
                if (!receives(root)) continue;
                wrong += work_.out.front() != value * factor() + offset(root, 0);
                wrong += work_.out.back() != value * factor() + offset(root, ranks_ - 1);
            }
        });
        if (wrong != 0)
            note(std::to_string(wrong) + " wrong results in the batch from " + std::to_string(first) + " on");
        time_one(way); // checks all elements
        return all / batch;
    }

    double time_barriers(int way, std::uint32_t batch) {
        return meeting_.time_together(me_, [&] {
            for (std::uint32_t i = 0; i < batch; ++i) peer_.call(work_, way, 0);
        }) / batch;
    }

    /// No rank may leave before all have arrived.
    void check_barrier(int way) {
        for (int i = 0; i < 20; ++i) {
            meeting_.mark(me_, meeting_.marked(me_) + 1);
            const std::uint64_t turn = meeting_.marked(me_);
            peer_.call(work_, way, 0);
            for (int other = 0; other < ranks_; ++other) {
                if (meeting_.marked(other) < turn) note("left before rank " + std::to_string(other) + " came");
            }
        }
    }

    [[nodiscard]] bool sums() const {
        return work_.what == Collective::all_reduce || work_.what == Collective::reduce_scatter;
    }
    [[nodiscard]] float factor() const { return sums() ? static_cast<float>(ranks_) : 1.0f; }
    [[nodiscard]] float offset(int root, int block) const {
        if (sums()) return static_cast<float>(ranks_ * (ranks_ - 1) / 2);
        return static_cast<float>(work_.what == Collective::broadcast || work_.what == Collective::send ? root
                                  : work_.what == Collective::copy                                      ? me_
                                                                                                        : block);
    }
    [[nodiscard]] bool receives(int root) const { return work_.what != Collective::send || me_ == (root + 1) % ranks_; }

    void check(int root, std::uint32_t repetition) {
        if (!receives(root)) return;
        const bool blocks = work_.what == Collective::all_gather;
        const std::size_t length = blocks ? work_.block : work_.out.size();
        const std::size_t begin = shape_of(work_, me_).out_begin;
        for (int block = 0; block < (blocks ? ranks_ : 1); ++block) {
            const Pattern expected(factor(), offset(root, block));
            const auto part = work_.out.subspan(static_cast<std::size_t>(block) * length, length);
            const std::size_t place = begin + static_cast<std::size_t>(block) * length;
            const std::size_t wrong = expected.first_wrong(part, place, repetition);
            if (wrong == length) continue;
            note("element " + std::to_string(place + wrong) + " is " + std::to_string(part[wrong]) + ", expected " +
                 std::to_string(expected.at(place + wrong + repetition)));
        }
    }

    void note(const std::string& wrong) {
        if (wrong_.empty()) wrong_ = "rank " + std::to_string(me_) + ": " + wrong;
    }

    Peer& peer_;
    int me_;
    int ranks_;
    Meeting meeting_;
    Driver driver_;
    Work work_;
    int ways_ = 0;
    std::set<std::string> hopeless_;
    std::string wrong_; ///< the first wrong result that was not reported to compare.py
    std::uint32_t turn_ = 0;
    std::shared_ptr<float> in_;
    std::shared_ptr<float> out_;
};

/// For contenders without a launcher of their own: runs `be(rank)` in processes that are forked
/// here, each bound to a core. Returns the exit status of the program.
template <class Be>
int run_forked(int ranks, Be be) {
    std::vector<pid_t> children;
    for (int rank = 0; rank < ranks; ++rank) {
        const pid_t child = ::fork();
        if (child < 0) give_up("cannot fork");
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            bind_to(cores(), rank);
            enter_host(rank, ranks);
            be(rank);
            _exit(0);
        }
        children.push_back(child);
    }
    int failed = 0;
    for (std::size_t i = 0; i < children.size(); ++i) {
        int status = 0;
        ::wait(&status);
        if (status != 0) failed = 1;
    }
    return failed;
}

} // namespace bench

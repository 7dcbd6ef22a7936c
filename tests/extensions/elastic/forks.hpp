// Ranks of an elastic world that are processes and report their ends to their parent.
#pragma once

#include "../../support/sanitizers.hpp"
#include "../../support/skip.hpp"

#include <unisono/elastic.hpp>
#include <unisono/launch/processes.hpp>

#include <boost/test/unit_test.hpp>

#include <array>
#include <chrono>
#include <cstdio>
#include <new>
#include <string>
#include <sys/mman.h>

namespace unisono_test {

namespace un = unisono;

using namespace std::chrono_literals;

/// A sanitizer slows ranks down so much that training ends before a new process or a stranger gets
/// anywhere.
inline bool too_slow() { // and skips the case
    if (test::sanitized) test::skip("ranks under a sanitizer are too slow for it");
    return test::sanitized;
}

/// The report of a process. `Result` has no pointers.
template <class Result>
struct Report {
    bool done = false;
    Result result = {};
    char text[400] = {}; ///< of an error
};

/// Memory that the parent and all processes share: one record per process, without pointers.
template <class Record>
class Records {
public:
    Records() : at_(::mmap(nullptr, sizeof(All), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
        ::new (at_) All;
    }
    Records(const Records&) = delete;
    Records& operator=(const Records&) = delete;
    ~Records() { ::munmap(at_, sizeof(All)); }
    Record& operator[](int who) const { return (*static_cast<All*>(at_))[static_cast<std::size_t>(who)]; }

private:
    using All = std::array<Record, 8>;
    void* at_;
};
template <class Result>
using Reports = Records<Report<Result>>;

inline un::ElasticOptions patient() {
    un::ElasticOptions options;
    options.join.timeout = 20s;
    options.join.rendezvous.timeout = 20s;
    options.patience = 10s;
    options.give_up = 20s;
    return options;
}

/// Runs the process `who`: a rank of the first world of `ranks`, or one that joins later.
/// `body(world)` returns its result.
template <class Transport, class Result, class Body>
int be_fork(int who, int ranks, const std::string& folder, Report<Result>& report, Body body) {
    un::ElasticOptions options = patient();
    options.folder = folder;
    options.joins = who >= ranks;
    try {
        auto world = options.joins ? un::join<un::Elastic<Transport>>(options)
                                   : un::join<un::Elastic<Transport>>(
                                         un::rendezvous(un::identity_of(who, ranks),
                                                        un::RendezvousPoint{.folder = folder}, options.join.rendezvous),
                                         options);
        report.result = body(world);
        report.done = true;
    } catch (const std::exception& failed) {
        std::snprintf(report.text, sizeof report.text, "%s", failed.what());
    }
    return report.done ? 0 : 1;
}

/// Waits until all processes have ended.
inline void await_end(un::Processes& processes, std::chrono::nanoseconds limit = 40s) {
    while (const auto end = processes.wait_any(un::steady_now() + limit.count())) static_cast<void>(end);
    BOOST_REQUIRE_MESSAGE(processes.running() == 0, "a rank hangs");
}

} // namespace unisono_test

// Faults between hosts: pulled cables, hosts that vanish or never existed, and slow ranks, which
// are no fault.
#include "support.hpp"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <dirent.h>
#include <random>
#include <thread>

using test::Job;
using test::Lab;
using test::Result;
using namespace std::chrono_literals;

namespace {

const Job::Variables impatient{{"TEST_TIMEOUT_S", "3"}};

/// The last line of a rank, "fault timeout peer 1: ...", in its parts.
struct FaultTold {
    std::string text = {};
    std::string code = {};
    int peer = -1;

    [[nodiscard]] bool mentions(const std::string& word) const { return text.find(word) != std::string::npos; }
};

FaultTold fault_of(const Result& result) {
    FaultTold told;
    const std::size_t at = result.out.find("fault ");
    if (at == std::string::npos) return told;
    told.text = result.out.substr(at, result.out.find('\n', at) - at);
    told.code = told.text.substr(6, told.text.find(' ', 6) - 6);
    const std::size_t peer = told.text.find(" peer ");
    if (peer != std::string::npos) told.peer = std::atoi(told.text.c_str() + peer + 6);
    return told;
}

/// The rank lost peers that it cannot reach any more, and reports their hosts.
void expect_lost(const Result& result, const std::vector<int>& lost, const std::string& transport,
                 const std::string& what) {
    const FaultTold told = fault_of(result);
    BOOST_TEST(result.status == 1, what << ": " << result.all());
    BOOST_TEST((told.code == "timeout" || told.code == "peer_lost"), what << ": " << result.all());
    BOOST_TEST((std::find(lost.begin(), lost.end(), told.peer) != lost.end()), what << ": " << result.all());
    BOOST_TEST(told.mentions("rank " + std::to_string(told.peer)), what << ": " << told.text);
    BOOST_TEST(told.mentions("10.77.0."), what << ": " << told.text);
    BOOST_TEST(told.mentions("interface eth0"), what << ": " << told.text);
    if (transport.find("libfabric") != std::string::npos)
        BOOST_TEST(told.mentions("provider "), what << ": " << told.text);
}

/// The ranks on the host, or on the other hosts.
std::vector<int> ranks_where(const std::vector<int>& host_of, int host, bool there) {
    std::vector<int> ranks;
    for (std::size_t rank = 0; rank < host_of.size(); ++rank) {
        if ((host_of[rank] == host) == there) ranks.push_back(static_cast<int>(rank));
    }
    return ranks;
}

/// A cable was pulled. Each rank blames a rank of the other side.
void expect_apart(const std::vector<Result>& results, const std::vector<int>& host_of, int host,
                  const std::string& transport, const std::string& what) {
    for (std::size_t rank = 0; rank < results.size(); ++rank)
        expect_lost(results[rank], ranks_where(host_of, host, host_of[rank] != host), transport,
                    what + ", rank " + std::to_string(rank));
}

} // namespace

BOOST_AUTO_TEST_SUITE(namespaces_faults)

BOOST_AUTO_TEST_CASE(a_cable_that_is_pulled_in_mid_collective) {
    if (test::skipped()) return;
    const std::vector<int> host_of{0, 0, 1, 1};
    std::vector<std::unique_ptr<Lab>> labs; // all at once, because they mostly wait
    std::vector<std::unique_ptr<Job>> jobs;
    for (const std::string& transport : test::transports()) {
        labs.push_back(std::make_unique<Lab>(2));
        jobs.push_back(std::make_unique<Job>(*labs.back(), host_of,
                                             std::vector<std::string>{transport, "loop", "50000", "60000"}, impatient));
        jobs.back()->wait_for("ready");
        labs.back()->cut(1);
    }
    for (std::size_t i = 0; i < jobs.size(); ++i)
        expect_apart(jobs[i]->end(), host_of, 1, test::transports()[i], test::transports()[i]);
}

BOOST_AUTO_TEST_CASE(a_host_that_vanishes_with_all_its_ranks) {
    if (test::skipped()) return;
    const Lab lab(3);
    Job job(lab, {0, 1, 2}, {"tcp", "loop", "50000", "60000"}, impatient, true);
    job.wait_for("ready");
    lab.cut(1); // so that its system sends no goodbye
    job.rank(1).signal(SIGKILL);
    const auto results = job.end({1});
    for (const std::size_t rank : {0u, 2u}) {
        expect_lost(results[rank], {1}, "tcp", "rank " + std::to_string(rank));
        BOOST_TEST(fault_of(results[rank]).mentions("does not answer"), results[rank].all());
    }
}

// All reach the host of the rendezvous.
BOOST_AUTO_TEST_CASE(two_hosts_that_do_not_reach_each_other) {
    if (test::skipped()) return;
    std::vector<std::unique_ptr<Lab>> labs;
    std::vector<std::unique_ptr<Job>> jobs;
    for (const bool silently : {false, true}) {
        for (const std::string& transport : test::transports()) {
            labs.push_back(std::make_unique<Lab>(3));
            for (const int from : {1, 2}) {
                if (silently) labs.back()->swallow_way(from, 3 - from);
                else labs.back()->refuse_way(from, 3 - from);
            }
            jobs.push_back(std::make_unique<Job>(*labs.back(), std::vector<int>{0, 1, 2},
                                                 std::vector<std::string>{transport, "sum", "50000", "1"}, impatient));
        }
    }
    for (std::size_t i = 0; i < jobs.size(); ++i) {
        const std::string transport = test::transports()[i % test::transports().size()];
        const std::string what = transport + (i < test::transports().size() ? ", refused" : ", silently");
        std::string first;
        for (const Result& one : jobs[i]->end()) {
            const FaultTold told = fault_of(one);
            expect_lost(one, {1, 2}, transport, what);
            if (first.empty()) first = told.code + std::to_string(told.peer);
            // All name the same rank.
            BOOST_TEST(told.code + std::to_string(told.peer) == first, what << ": " << told.text);
        }
    }
}

BOOST_AUTO_TEST_CASE(a_meeting_point_that_is_not_reached) {
    if (test::skipped()) return;
    std::vector<std::unique_ptr<Lab>> labs;
    std::vector<std::unique_ptr<Job>> jobs;
    for (const bool silently : {false, true}) {
        labs.push_back(std::make_unique<Lab>(2));
        if (silently) labs.back()->swallow_way(1, 0);
        else labs.back()->refuse_way(1, 0);
        jobs.push_back(std::make_unique<Job>(*labs.back(), std::vector<int>{0, 1},
                                             std::vector<std::string>{"hosts", "sum", "100", "1"}, impatient));
    }
    for (const auto& job : jobs) {
        const auto results = job->end();
        const FaultTold found = fault_of(results[0]), lost = fault_of(results[1]);
        BOOST_TEST((found.code == "timeout" && found.mentions("1 never came: rank 1")), results[0].all());
        BOOST_TEST((lost.code == "timeout" && lost.peer == 0 && lost.mentions("10.77.0.1:29500")), results[1].all());
    }
}

BOOST_AUTO_TEST_CASE(a_slow_cable_is_no_fault) {
    if (test::skipped()) return;
    std::vector<std::unique_ptr<Lab>> labs;
    std::vector<std::unique_ptr<Job>> jobs;
    for (const std::string& transport : test::transports()) {
        labs.push_back(std::make_unique<Lab>(2));
        labs.back()->slow_down(1, 2000); // 200 kB take most of a second
        jobs.push_back(std::make_unique<Job>(*labs.back(), std::vector<int>{0, 0, 1},
                                             std::vector<std::string>{transport, "sum", "50000", "1"},
                                             Job::Variables{{"TEST_TIMEOUT_S", "40"}}));
    }
    for (const auto& job : jobs) BOOST_TEST(job->agree() == "summed\n");
}

BOOST_AUTO_TEST_CASE(nothing_is_left_of_a_test_that_is_killed) {
    if (test::skipped()) return;
    int ends[2];
    BOOST_TEST_REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    const int child = ::fork();
    if (child == 0) {
        const Lab lab(2);
        const Job job(lab, {0, 1}, {"hosts", "loop", "1000", "60000"});
        char text[64] = {};
        ::readlink(lab.space(0).path().c_str(), text, sizeof text - 1);
        static_cast<void>(::write(ends[1], text, sizeof text) + 0);
        ::pause();
        ::_exit(0);
    }
    char space[64] = {};
    BOOST_TEST(::read(ends[0], space, sizeof space) == 64);
    BOOST_TEST(std::string(space).starts_with("net:["));
    const auto users = [&] { // processes in that namespace
        int count = 0;
        DIR* const all = ::opendir("/proc");
        while (const dirent* const entry = ::readdir(all)) {
            char text[64] = {};
            if (::readlink(("/proc/" + std::string(entry->d_name) + "/ns/net").c_str(), text, sizeof text - 1) > 0 &&
                std::string(text) == space)
                ++count;
        }
        ::closedir(all);
        return count;
    };
    for (int i = 0; users() == 0 && i < 4000; ++i) std::this_thread::sleep_for(5ms);
    BOOST_TEST(users() > 0);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    for (int i = 0; users() != 0 && i < 4000; ++i) std::this_thread::sleep_for(5ms);
    BOOST_TEST(users() == 0);
    for (const int each : ends) ::close(each);
}

namespace {

/// A job in a lab of its own and its fault, both from a seed.
class SeededFault {
public:
    enum Kind { kill, stop, link_down, link_slow };

    explicit SeededFault(unsigned seed) : kind(static_cast<Kind>(seed % 4)) {
        std::seed_seq scattered{seed};
        std::mt19937 random(scattered);
        const auto below = [&](int most) { return static_cast<int>(random() % static_cast<unsigned>(most)); };
        const int hosts = 2 + below(2);
        const int ranks = std::max(hosts, 2 + below(4));
        for (int rank = 0; rank < ranks; ++rank) host_of_.push_back(rank < hosts ? rank : below(hosts));
        std::shuffle(host_of_.begin(), host_of_.end(), random);
        transport_ = test::transports()[static_cast<std::size_t>(below(static_cast<int>(test::transports().size())))];
        victim_ = below(ranks);
        const int elements = 1 << below(17);
        delay_ = std::chrono::milliseconds(below(100));
        static constexpr const char* names[] = {"kill", "stop", "link down", "link slow"};
        what = "seed " + std::to_string(seed) + ": " + names[kind] + ", " + transport_ + ", " +
               std::to_string(elements) + " elements, victim " + std::to_string(victim_) + " of hosts";
        for (const int each : host_of_) what += " " + std::to_string(each);
        lab_ = std::make_unique<Lab>(hosts);
        const bool waits = kind == stop || kind == link_down; // for the deadline
        job_ = std::make_unique<Job>(*lab_, host_of_,
                                     std::vector<std::string>{transport_, "loop", std::to_string(elements),
                                                              kind == link_slow ? "1000" : "60000"},
                                     Job::Variables{{"TEST_TIMEOUT_S", waits ? "3" : "40"}});
    }

    void happen() {
        job_->wait_for("ready");
        std::this_thread::sleep_for(delay_);
        if (kind == link_down) lab_->cut(host());
        else if (kind == link_slow) lab_->slow_down(host(), 4000);
        else job_->rank(victim_).signal(kind == kill ? SIGKILL : SIGSTOP);
    }

    void judge() {
        if (kind == link_slow) { // not a fault
            for (const Result& one : job_->end()) BOOST_TEST(one.has("all is well"), what << ": " << one.all());
            return;
        }
        if (kind == link_down) return expect_apart(job_->end(), host_of_, host(), transport_, what);
        const auto results = job_->end({victim_});
        for (std::size_t rank = 0; rank < results.size(); ++rank) {
            if (static_cast<int>(rank) == victim_) continue;
            const FaultTold told = fault_of(results[rank]);
            BOOST_TEST(told.peer == victim_, what << ", rank " << rank << ": " << results[rank].all());
            BOOST_TEST((told.code == (kind == kill ? "peer_lost" : "timeout")),
                       what << ", rank " << rank << ": " << told.text);
        }
    }

    const Kind kind;
    std::string what = {};

private:
    [[nodiscard]] int host() const { return host_of_[static_cast<std::size_t>(victim_)]; }

    std::vector<int> host_of_;
    std::string transport_;
    int victim_ = 0;
    std::chrono::nanoseconds delay_{0};
    std::unique_ptr<Lab> lab_;
    std::unique_ptr<Job> job_;
};

} // namespace

/// UNISONO_FAULTS=200 is the number of jobs, each with its own seed. UNISONO_FAULTS_FROM is the
/// first seed. --log_level=message prints them.
BOOST_AUTO_TEST_CASE(seeded_faults, *boost::unit_test::label("slow")) {
    if (test::skipped()) return;
    const auto number = [](const char* name, unsigned otherwise) {
        const char* const said = std::getenv(name);
        return said != nullptr ? static_cast<unsigned>(std::atoi(said)) : otherwise;
    };
    const unsigned first = number("UNISONO_FAULTS_FROM", 1), count = number("UNISONO_FAULTS", 6);
    constexpr unsigned at_once = 2; // they mostly wait
    unsigned of_kind[4] = {};
    for (unsigned done = 0; done < count; done += at_once) {
        std::vector<std::unique_ptr<SeededFault>> faults;
        for (unsigned i = done; i < std::min(count, done + at_once); ++i) {
            faults.push_back(std::make_unique<SeededFault>(first + i));
            BOOST_TEST_MESSAGE(faults.back()->what);
            ++of_kind[faults.back()->kind];
        }
        for (const auto& each : faults) each->happen();
        for (const auto& each : faults) each->judge();
    }
    std::printf("seeded faults: %u kills, %u stops, %u links down, %u links slow\n", of_kind[0], of_kind[1], of_kind[2],
                of_kind[3]);
}

BOOST_AUTO_TEST_SUITE_END()

// Elastic worlds of ranks on hosts that are namespaces: what pulled cables, resets, addresses and
// firewalls do to them. There are never two worlds.
#include "support.hpp"

#include <algorithm>
#include <csignal>
#include <string>
#include <vector>

using namespace std::chrono_literals;

namespace {

/// Ranks that cannot look for processes of other hosts.
class ElasticJob {
public:
    ElasticJob(const test::Lab& lab, const std::vector<int>& host_of, const std::string& transport,
               bool trust_resets = false, int patience_ms = 500)
        : job_(lab, host_of,
               {transport, std::to_string(patience_ms), std::to_string(8 * patience_ms), trust_resets ? "1" : "0"}, {},
               true, UNISONO_ELASTIC_RANK) {
        job_.wait_for("update 20");
    }
    [[nodiscard]] test::Command& rank(int number) { return job_.rank(number); }
    /// Kills a rank: what was started for it is `unshare`, which takes the rank along.
    void kill(int number) { job_.rank(number).signal(SIGKILL); }
    /// All end, those of `world` with the bits of an undisturbed training, and the others with an
    /// error. `killed`: were killed.
    void expect(const std::vector<int>& world, const std::vector<int>& killed = {}) {
        static const std::string bits = [] {
            const test::Lab lab(1);
            ElasticJob alone(lab, {0}, "tcp");
            const std::string text = alone.job_.end()[0].out;
            return text.substr(text.find("bits "), text.find(" of ", text.find("bits ")) - text.find("bits "));
        }();
        std::string members;
        for (const int member : world) members += " " + std::to_string(member);
        const auto is_in = [](const std::vector<int>& all, std::size_t rank) {
            return std::find(all.begin(), all.end(), static_cast<int>(rank)) != all.end();
        };
        const auto results = job_.end(killed);
        for (std::size_t rank = 0; rank < results.size(); ++rank) {
            if (is_in(killed, rank)) continue;
            const test::Result& one = results[rank];
            BOOST_TEST_CONTEXT("rank " << rank << ": " << one.all()) {
                if (is_in(world, rank)) BOOST_TEST(one.has(bits + " of members" + members + "\n"));
                else BOOST_TEST(one.has("fault "));
                BOOST_TEST(one.status == (is_in(world, rank) ? 0 : 1));
            }
        }
    }

private:
    test::Job job_;
};

} // namespace

BOOST_AUTO_TEST_SUITE(namespaces_cables)

/// The others have ended when the cable is plugged in again: their host refuses.
BOOST_AUTO_TEST_CASE(a_cable_that_comes_back_late) {
    if (test::skipped()) return;
    for (const std::string transport : {"tcp", "hosts"}) {
        const test::Lab lab(2);
        ElasticJob job(lab, {0, 1, 1, 1}, transport);
        lab.cut(0);
        for (const int rank : {1, 2, 3}) BOOST_TEST(job.rank(rank).says("of members", 30s));
        lab.mend(0);
        job.expect({1, 2, 3});
    }
}

/// Another machine takes the address of the others, and answers by resets.
BOOST_AUTO_TEST_CASE(an_address_that_is_taken_over) {
    if (test::skipped()) return;
    const test::Lab lab(3);
    ElasticJob job(lab, {0, 1, 1, 1}, "tcp");
    lab.cut(1);
    lab.take_over(1, 2);
    job.expect({1, 2, 3});
}

/// One rank on each of two hosts, and one of them is killed. Its host refuses, which proves
/// nothing: rank 0 continues, as the half with the lowest rank. Rank 1 does if it trusts what the
/// network says.
BOOST_AUTO_TEST_CASE(the_last_rank_of_a_host_is_killed) {
    if (test::skipped()) return;
    const test::Lab lab(2);
    for (const bool trusts : {false, true})
        for (const int killed : {0, 1}) {
            BOOST_TEST_CONTEXT("rank " << killed << " is killed; trust_resets: " << trusts) {
                ElasticJob job(lab, {0, 1}, "tcp", trusts);
                job.kill(killed);
                job.expect(killed == 1 || trusts ? std::vector<int>{1 - killed} : std::vector<int>{}, {killed});
            }
        }
}

/// New connections to a host are refused, or get no answer. The ranks there are a majority.
BOOST_AUTO_TEST_CASE(a_rank_that_cannot_come) {
    if (test::skipped()) return;
    for (const bool silently : {false, true}) {
        const test::Lab lab(2);
        ElasticJob job(lab, {0, 0, 0, 1}, "tcp");
        if (!lab.wall_in(0, silently)) return test::skip_part("firewalls: there is no nft");
        job.kill(1);
        job.expect({0, 2}, {1});
    }
}

/// Two hosts refuse each other, and rank 0 reaches both. So the ranks agree and meet, and lose the
/// connection again, until one of the two is left out.
BOOST_AUTO_TEST_CASE(two_ranks_that_cannot_connect) {
    if (test::skipped()) return;
    const test::Lab lab(4);
    ElasticJob job(lab, {0, 1, 2, 3}, "tcp", false, 1500); // a rank that is slow once is not to be left out
    if (!lab.refuse_each_other(1, 2)) return test::skip_part("firewalls: there is no nft");
    job.expect({0, 1, 3});
}

BOOST_AUTO_TEST_SUITE_END()

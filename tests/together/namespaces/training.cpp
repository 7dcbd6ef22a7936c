// Several hosts, each a namespace with an interface of its own: results, bits, and the traffic
// through the cables.
#include "support.hpp"

#include <cmath>

using test::Job;
using test::Lab;
using namespace std::chrono_literals;

namespace {

/// The bits of a single rank.
std::string bits_alone() {
    static const std::string bits = test::run_command({UNISONO_HOST_RANK, "alone", "train"}).out;
    BOOST_TEST_REQUIRE(bits.starts_with("bits "));
    return bits;
}

} // namespace

BOOST_AUTO_TEST_SUITE(namespaces_training)

BOOST_AUTO_TEST_CASE(two_hosts_have_the_bits_of_one_rank) {
    if (test::skipped()) return;
    const Lab lab(2);
    for (const std::string& transport : test::transports())
        BOOST_TEST(Job(lab, {0, 0, 1, 1}, {transport, "train"}).agree() == bits_alone(), transport);
    // Rank 0, where all meet, is on another host.
    BOOST_TEST(Job(lab, {1, 0, 1}, {"hosts", "train"}).agree() == bits_alone());
}

// A mesh of 2 x 2. The stages of a replica share a host, or neighbours are on different hosts.
void layers_on_two_hosts(const std::string& transport) {
    if (test::skipped()) return;
    static const std::string alone = test::run_command({UNISONO_HOST_RANK, "alone", "split", "1", "1"}).out;
    BOOST_TEST_REQUIRE(alone.starts_with("bits "));
    const Lab lab(2);
    for (const std::vector<int>& host_of : {std::vector<int>{0, 0, 1, 1}, std::vector<int>{0, 1, 0, 1}})
        BOOST_TEST(Job(lab, host_of, {transport, "split", "2", "2"}).agree() == alone);
    BOOST_TEST(Job(lab, {0, 1, 1}, {transport, "split", "1", "3"}).agree() == alone);
}
BOOST_AUTO_TEST_CASE(layers_over_sockets_have_the_bits_of_one_rank) { layers_on_two_hosts("tcp"); }
BOOST_AUTO_TEST_CASE(layers_on_two_hosts_have_the_bits_of_one_rank) { layers_on_two_hosts("hosts"); }

// The right column of docs/parallel.md, unchanged.
BOOST_AUTO_TEST_CASE(the_lines_of_the_documentation) {
    if (test::skipped()) return;
#ifdef UNISONO_PARALLEL_DIGITS
    const Lab lab(2);
    const auto weights = [&](const std::vector<int>& host_of, const std::vector<std::string>& arguments) {
        std::vector<std::unique_ptr<test::Command>> ranks;
        for (std::size_t rank = 0; rank < host_of.size(); ++rank) {
            std::vector<std::string> line{UNISONO_PARALLEL_DIGITS, "--epochs", "1", "--transport", "tcp"};
            line.insert(line.end(), arguments.begin(), arguments.end());
            ranks.push_back(std::make_unique<test::Command>(
                lab.on(host_of[rank], line), Job::Variables{{"MASTER_ADDR", Lab::address(host_of[0])},
                                                            {"MASTER_PORT", "29500"},
                                                            {"RANK", std::to_string(rank)},
                                                            {"WORLD_SIZE", std::to_string(host_of.size())},
                                                            {"UNISONO_TOKEN", std::string(32, '7')}}));
        }
        double sum = 0;
        for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
            const test::Result end = ranks[rank]->end(50s);
            BOOST_TEST(end.status == 0, end.all());
            const std::size_t at = end.out.find("sum of all weights ");
            BOOST_TEST((at != std::string::npos) == (rank == 0), end.all()); // rank 0 prints
            if (at != std::string::npos) sum = std::stod(end.out.substr(at + 19));
        }
        return sum;
    };
    const double two = weights({0, 1}, {"--data", "2", "--pipeline", "1"});
    BOOST_TEST(two > 1);
    BOOST_TEST(weights({0, 1}, {"--pipeline", "2"}) > 1);
    for (const std::vector<int>& host_of : {std::vector<int>{0, 0, 1, 1}, std::vector<int>{0, 1, 0, 1}})
        BOOST_TEST(std::abs(weights(host_of, {"--data", "2", "--pipeline", "2"}) - two) < 1e-6 * two);
#else
    std::printf("left out: the lines of docs/parallel.md: the examples are not built here\n");
#endif
}

BOOST_AUTO_TEST_CASE(four_hosts_have_the_bits_of_one_rank) {
    if (test::skipped()) return;
    const Lab lab(4);
    BOOST_TEST(Job(lab, {0, 1, 2, 3}, {"tcp", "train"}).agree() == bits_alone());
    BOOST_TEST(Job(lab, {0, 1, 1, 2, 3, 0}, {"hosts", "hosts"}).agree() == "hosts 0 1 1 2 3 0\n");
}

BOOST_AUTO_TEST_CASE(a_long_bad_cable) { // 10 ms, 1 % is lost, 100 Mbit/s
    if (test::skipped()) return;
    std::unique_ptr<Lab> lab;
    try {
        lab = std::make_unique<Lab>(2, test::far);
    } catch (const std::exception& failed) {
        std::printf("left out: delay and loss: neither netem nor a relay: %s\n", failed.what());
        return;
    }
    for (const std::string& transport : test::transports())
        BOOST_TEST(Job(*lab, {0, 1}, {transport, "sum", "100000", "5"}).agree() == "summed\n", transport);
    BOOST_TEST(Job(*lab, {0, 0, 1, 1}, {"hosts", "train"}).agree() == bits_alone());
}

BOOST_AUTO_TEST_CASE(the_cable_carries_what_a_ring_of_two_sends) {
    if (test::skipped()) return;
    const Lab lab(2);
    constexpr std::uint64_t payload = 4 * 250'000 * 20; // bytes of each host's part in 20 sums
    const auto sent_by = [&](const std::string& transport) {
        const std::uint64_t before = lab.bytes_sent(0);
        BOOST_TEST(Job(lab, {0, 0, 1, 1}, {transport, "sum", "250000", "20"}).agree() == "summed\n");
        return lab.bytes_sent(0) - before;
    };
    const std::uint64_t hosts = sent_by("hosts");
    BOOST_TEST(hosts >= payload);
    BOOST_TEST(hosts < payload + payload / 10);         // headers, acknowledgements, the rendezvous
    BOOST_TEST(sent_by("tcp") > payload + payload / 3); // a ring of four sends half as much again
}

BOOST_AUTO_TEST_CASE(who_shares_memory_is_found_out) {
    if (test::skipped()) return;
    const Lab lab(2);
    const Job::Variables unsaid{{"UNISONO_HOSTS", ""}};
    // Network namespaces do not prevent processes from sharing memory,
    BOOST_TEST(Job(lab, {0, 1, 1}, {"hosts", "hosts"}, unsaid).agree() == "hosts 0 0 0\n");
    // but namespaces of process IDs do, as in containers.
    BOOST_TEST(Job(lab, {0, 1}, {"hosts", "hosts"}, unsaid, true).agree() == "hosts 0 1\n");
}

BOOST_AUTO_TEST_SUITE_END()

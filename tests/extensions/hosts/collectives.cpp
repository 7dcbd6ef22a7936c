// Collectives on hosts of several ranks, for any sizes and any order of ranks: results are right,
// hosts are known, and no more bytes cross between hosts than one rank per host would send.
#include "support.hpp"
#include "support/fails.hpp"

#include <unisono/extensions/reducers/hierarchical.hpp>

#include <atomic>

namespace un = unisono;
using test::check_all_reduce;
using test::check_others;
using test::check_several_in_flight;
using test::Findings;
using test::Group;

namespace {

using Places = std::vector<int>; ///< the host of each rank

/// For the time of a test.
class Pretend {
public:
    explicit Pretend(Places places) {
        test::pretended_host = [all = std::move(places)](int rank, int) {
            return all.at(static_cast<std::size_t>(rank));
        };
    }
    Pretend(const Pretend&) = delete;
    Pretend& operator=(const Pretend&) = delete;
    ~Pretend() {
        test::pretended_host = [](int rank, int) { return rank % 2; };
    }
};

/// Compares every collective on any group with its definition.
void check_all(Group& group, Findings& findings, std::size_t count) {
    check_all_reduce(group, findings, count, un::NativeSchedule{});
    check_all_reduce(group, findings, count, un::RingSchedule{.chunk_bytes = 4096});
    check_all_reduce(group, findings, count,
                     un::HierarchicalSchedule{.tree_across = true, .chunk_bytes = 4096, .hosts = group.hosts()});
    check_others(group, findings, count);
}

} // namespace

BOOST_AUTO_TEST_SUITE(hosts_collectives)

BOOST_AUTO_TEST_CASE(all_collectives_wherever_the_ranks_are) {
    for (const Places& places : {Places{0}, Places{0, 0}, Places{0, 1}, Places{0, 0, 0, 1}, Places{0, 1, 1, 1},
                                 Places{0, 0, 1, 1}, Places{0, 1, 0, 1}, Places{0, 1, 2, 3}, Places{0, 1, 1, 0, 2}}) {
        const Pretend pretend(places);
        test::on_ranks(static_cast<int>(places.size()), [&](Group& group, test::Findings& findings) {
            for (const std::size_t count : {0u, 1u, 40'000u}) check_all(group, findings, count);
        });
    }
}

BOOST_AUTO_TEST_CASE(groups_know_their_hosts) {
    const Pretend pretend({0, 0, 1, 1, 0});
    test::on_ranks(5, [&](Group& group, test::Findings& findings) {
        findings.expect(*group.hosts() == un::HostMap(std::vector<int>{0, 0, 1, 1, 0}), "of the world");
        findings.expect(group.endpoint().hosts() == 2 && group.endpoint().host_of(4) == 0, "of the transport");
        // 4 3 2 0.
        Group others = group.split(group.rank() == 1 ? un::no_colour : 0, -group.rank());
        if (group.rank() == 1) return findings.expect(others.hosts() == nullptr, "of the empty group");
        findings.expect(*others.hosts() == un::HostMap(std::vector<int>{0, 1, 1, 0}), "of a group");
        check_all(others, findings, 1000);
        Group here = others.split(others.hosts()->host_of(others.rank()), others.rank());
        findings.expect(here.hosts()->hosts() == 1 && here.size() == 2, "of a host");
        const std::uint64_t before = group.endpoint().bytes_to_other_hosts();
        check_all(here, findings, 1000);
        findings.expect(group.endpoint().bytes_to_other_hosts() == before, "a host's ranks need no network");
    });
}

BOOST_AUTO_TEST_CASE(several_in_flight_in_several_groups) {
    test::on_ranks(4, [&](Group& group, test::Findings& findings) {
        Group half = group.split(group.rank() / 2, group.rank()); // each over both hosts
        check_several_in_flight(group, half, findings);
    });
}

/// Bytes that all ranks send to other hosts in `body`.
template <class Body>
std::uint64_t crossing(int ranks, Body body) {
    std::atomic<std::uint64_t> crossed = 0;
    test::run(
        ranks,
        [&](Group& group) {
            const std::uint64_t before = group.endpoint().bytes_to_other_hosts();
            body(group);
            crossed += group.endpoint().bytes_to_other_hosts() - before;
        },
        test::limit);
    return crossed;
}

BOOST_AUTO_TEST_CASE(two_hosts_of_two_send_what_a_ring_of_two_sends) {
    for (const Places& places : {Places{0, 0, 1, 1}, Places{0, 1, 0, 1}, Places{0, 0, 0, 1}}) {
        const Pretend pretend(places);
        for (const std::size_t count : {1000u, 100'000u}) {
            // Of two ranks. Each sends all bytes once.
            const std::uint64_t ring = 2 * count * sizeof(float);
            const auto sum = [&](const auto&... family) {
                return crossing(4, [&](Group& group) {
                    std::vector<float> own(count, 1.0f);
                    auto shared = group.allocate<float>(count);
                    std::fill(shared.begin(), shared.end(), 1.0f);
                    un::all_reduce(group, own, un::Sum{}, family...);
                    un::all_reduce(group, shared, un::Sum{}, family...);
                    if (own[count - 1] != 4.0f || shared[0] != 4.0f) throw std::runtime_error("wrong sum");
                });
            };
            BOOST_TEST(sum(un::NativeSchedule{}) == 2 * ring); // two calls
            BOOST_TEST(sum(un::RingSchedule{}) > 2 * ring);
        }
    }
}

BOOST_AUTO_TEST_CASE(blocks_cross_once_a_host_wherever_the_ranks_are) {
    constexpr std::size_t count = 3000; // of a block
    constexpr std::uint64_t block = count * sizeof(float);
    for (const Places& places : {Places{0, 0, 1, 1}, Places{0, 1, 0, 1}, Places{0, 1, 1, 0}, Places{0, 1, 2, 0, 1, 2},
                                 Places{0, 1, 2, 3, 0, 1, 2, 3}}) {
        const Pretend pretend(places);
        const int ranks = static_cast<int>(places.size());
        const auto p = static_cast<std::size_t>(ranks);
        const std::uint64_t hosts = static_cast<std::uint64_t>(*std::max_element(places.begin(), places.end())) + 1;
        const auto moved = [&](auto call) {
            return crossing(ranks, [&](Group& group) {
                std::vector<float> all(p * count, 1.0f), own(count, 1.0f);
                call(group, all, own);
            });
        };
        const auto gathered = [&](const auto&... family) {
            return moved([&](Group& group, auto& all, auto& own) { un::all_gather(group, own, all, {}, family...); });
        };
        const auto scattered = [&](const auto&... family) {
            return moved([&](Group& group, auto& all, auto& own) {
                un::reduce_scatter(group, all, own, un::Sum{}, {}, family...);
            });
        };
        const auto to_root = [&](const auto&... family) {
            return moved([&](Group& group, auto& all, auto& own) { un::gather(group, own, all, 1, {}, family...); });
        };
        const auto from_root = [&](const auto&... family) {
            return moved([&](Group& group, auto& all, auto& own) { un::scatter(group, all, own, 1, {}, family...); });
        };
        // As many bytes as one rank per host would send, with all blocks of its host.
        BOOST_TEST(gathered() == (hosts - 1) * p * block);
        BOOST_TEST(scattered() == (hosts - 1) * p * block);
        // With two and three hosts, each sends directly to the root. With four, one host's blocks
        // pass through another.
        const std::uint64_t elsewhere = (hosts - 1 + (hosts == 4 ? 1 : 0)) * (p / hosts) * block;
        BOOST_TEST(to_root() == elsewhere);
        BOOST_TEST(from_root() == elsewhere);
        BOOST_TEST(gathered(un::RingSchedule{}) > gathered());
        BOOST_TEST(scattered(un::RingSchedule{}) > scattered());
        if (hosts != 3) continue;
        BOOST_TEST(to_root(un::TreeSchedule{}) > elsewhere);
        BOOST_TEST(from_root(un::TreeSchedule{}) > elsewhere);
    }
}

/// The sums of reduce_scatter by position. Equal positions contribute equal values, whichever rank
/// is there.
std::vector<float> sums_by_position(const Places& places) {
    const Pretend pretend(places);
    const un::HostMap map(places);
    constexpr std::size_t count = 501;
    std::vector<float> found(places.size() * count);
    test::run(
        static_cast<int>(places.size()),
        [&](Group& group) {
            std::vector<float> all(places.size() * count), own(count);
            const int me = map.position(group.rank());
            for (int rank = 0; rank < group.size(); ++rank) {
                const std::size_t begin = static_cast<std::size_t>(rank) * count;
                for (std::size_t i = 0; i < count; ++i)
                    all[begin + i] =
                        1.0f / static_cast<float>(1 + 7 * me + 3 * map.position(rank) + static_cast<int>(i));
            }
            un::reduce_scatter(group, all, own);
            std::copy(own.begin(), own.end(),
                      found.begin() + static_cast<std::ptrdiff_t>(me) * static_cast<std::ptrdiff_t>(count));
        },
        test::limit);
    return found;
}

BOOST_AUTO_TEST_CASE(the_order_of_ranks_on_hosts_changes_no_bit) {
    const std::vector<float> in_order = sums_by_position({0, 0, 0, 1, 1, 1});
    BOOST_TEST(oracle::equal(sums_by_position({0, 1, 0, 1, 0, 1}), in_order));
    BOOST_TEST(oracle::equal(sums_by_position({0, 1, 1, 0, 0, 1}), in_order));
}

BOOST_AUTO_TEST_CASE(the_hierarchical_reducer_needs_not_be_told) {
    for (const Places& places : {Places{0, 0, 1, 1}, Places{0, 1, 0, 1}}) {
        const Pretend pretend(places);
        const auto bytes = [&](const auto& reducer) {
            return crossing(4, [&](Group& group) {
                const auto run = reducer.start(group);
                std::vector<float> values(50'000, 1.0f);
                run.sum(group, std::span<float>(values)).wait();
                if (values.front() != 4.0f) throw std::runtime_error("wrong sum");
                const std::vector<std::size_t> counts{20'000, 10'000, 0, 20'000};
                run.sum_slices(group, std::span<float>(values), counts).wait();
                const std::size_t first = group.rank() == 0 ? 0 : group.rank() == 1 ? 20'000 : 30'000;
                if (group.rank() != 2 && values[first] != 16.0f) throw std::runtime_error("wrong slice");
            });
        };
        const std::uint64_t told = bytes(un::HierarchicalReducer{});
        BOOST_TEST(told < bytes(un::RingReducer{}));
        // A vector and slices, each as often as a ring of two sends them.
        BOOST_TEST(told == 2 * 200'000u + 200'000u);
        BOOST_TEST(bytes(un::NativeReducer{}) <= told);
    }
}

BOOST_AUTO_TEST_CASE(names_of_hosts) {
    const un::Environment environment{{"UNISONO_HOSTS", "a,b,a"}};
    using Options = un::HostsOptions<un::Tcp>;
    BOOST_TEST(Options{}.name_of(0, 3, {}).empty());
    BOOST_TEST(Options{}.name_of(1, 3, environment) == "b");
    BOOST_TEST(Options{}.name_of(2, 3, environment) == "a");
    BOOST_TEST(Options{}.name_of(7, 9, {{"UNISONO_HOSTS", "a,b,a"}, {"UNISONO_HOST_NAME", "c"}}) == "c");
    BOOST_TEST(Options{.host = "own"}.name_of(7, 9, environment) == "own");
    BOOST_TEST((Options{.hosts = {"x", "y", "y"}, .host = "own"}.name_of(2, 3, environment)) == "y");
    for (const char* const wrong : {"a", "a,b,c,d", "a,,b", ",a,b", "a,b,"})
        test::fails(un::ErrorCode::bad_input, {"UNISONO_HOSTS", wrong}, [&] {
            static_cast<void>(Options{}.name_of(0, 3, {{"UNISONO_HOSTS", wrong}}));
        });
    test::fails(un::ErrorCode::bad_input, {"1 names for 3 ranks"},
                [] { static_cast<void>(Options{.hosts = {"a"}}.name_of(0, 3, {})); });
    const test::Variable said("UNISONO_HOSTS", "a,b,a");
    std::atomic<int> good = 0;
    un::run<un::Hosts<un::Tcp>>(3, [&](auto& world) {
        un::barrier(world);
        good += *world.hosts() == un::HostMap(std::vector<int>{0, 1, 0}) ? 1 : 0;
    });
    BOOST_TEST(good == 3);
}

BOOST_AUTO_TEST_SUITE_END()

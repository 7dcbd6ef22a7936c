#include "findings.hpp"
#include "oracle.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <numeric>
#include <span>
#include <string>

namespace un = unisono;
using test::Group;

namespace {

/// Different counts, one of them zero.
std::vector<std::size_t> uneven(int world, std::size_t scale) {
    std::vector<std::size_t> counts(static_cast<std::size_t>(world));
    for (std::size_t i = 0; i < counts.size(); ++i) counts[i] = (i * 5 + 1) % 4 * scale;
    return counts;
}

std::size_t sum(const std::vector<std::size_t>& counts) {
    return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

std::size_t before(const std::vector<std::size_t>& counts, int rank) {
    return std::accumulate(counts.begin(), counts.begin() + rank, std::size_t{0});
}

template <class T>
std::vector<T> part(const std::vector<T>& all, std::size_t begin, std::size_t count) {
    const auto from = all.begin() + static_cast<std::ptrdiff_t>(begin);
    return std::vector<T>(from, from + static_cast<std::ptrdiff_t>(count));
}

template <class Family>
void check_broadcast_and_reduce(int world, std::size_t count, const Family& family) {
    test::on_each_rank(world, [&](Group& group, test::Findings& findings) {
        for (int root = 0; root < world; ++root) {
            const std::string where = std::string(Family::name) + " world " + std::to_string(world) + " root " +
                                      std::to_string(root) + " count " + std::to_string(count);
            std::vector<int> data = oracle::contribution<int>(group.rank(), count);
            un::broadcast(group, data, root, family);
            findings.expect(data == oracle::contribution<int>(root, count), "broadcast " + where);

            const std::vector<int> in = oracle::contribution<int>(group.rank(), count);
            std::vector<int> out(group.rank() == root ? count : 0);
            un::reduce(group, in, out, root, un::Sum{}, family);
            if (group.rank() == root)
                findings.expect(out == oracle::reduced<int>(world, count, un::Sum{}), "reduce " + where);
            findings.expect(in == oracle::contribution<int>(group.rank(), count), "reduce changed its input " + where);
            std::vector<int> same = in;
            un::reduce(group, same, same, root, un::Sum{}, family);
            if (group.rank() == root) findings.expect(same == out, "reduce in place " + where);
        }
    });
}

template <class Family>
void check_blocks(int world, std::size_t scale, bool with_counts, const Family& family) {
    test::Findings findings{world};
    const std::vector<std::size_t> counts =
        with_counts ? uneven(world, scale) : std::vector<std::size_t>(static_cast<std::size_t>(world), scale);
    const std::span<const std::size_t> given =
        with_counts ? std::span<const std::size_t>(counts) : std::span<const std::size_t>();
    const std::size_t all_count = sum(counts);
    std::vector<float> everything(all_count);
    for (int rank = 0; rank < world; ++rank) {
        const auto own = oracle::contribution<float>(rank, counts[static_cast<std::size_t>(rank)]);
        std::copy(own.begin(), own.end(), everything.begin() + static_cast<std::ptrdiff_t>(before(counts, rank)));
    }
    test::run(
        world,
        [&](Group& group) {
            const int rank = group.rank();
            const std::size_t own = counts[static_cast<std::size_t>(rank)];
            const std::string where = std::string(Family::name) + " world " + std::to_string(world) + " scale " +
                                      std::to_string(scale) + (with_counts ? " uneven" : "");
            const auto mine = oracle::contribution<float>(rank, own);
            if constexpr (un::schedule::offers<Family, un::Collective::all_gather> ||
                          std::same_as<Family, un::NativeSchedule>) {
                std::vector<float> all(all_count);
                un::all_gather(group, mine, all, given, family);
                findings.expect(all == everything, "all_gather " + where);
                std::vector<float> place(all_count);
                const std::span<float> own_block = std::span(place).subspan(before(counts, rank), own);
                std::copy(mine.begin(), mine.end(), own_block.begin());
                un::all_gather(group, own_block, place, given, family);
                findings.expect(place == everything, "all_gather in place " + where);
            }
            if constexpr (un::schedule::offers<Family, un::Collective::reduce_scatter> ||
                          std::same_as<Family, un::NativeSchedule>) {
                const auto in = oracle::contribution<float>(rank, all_count);
                const auto expected =
                    part(oracle::reduced<float>(world, all_count, un::Sum{}), before(counts, rank), own);
                std::vector<float> out(own);
                un::reduce_scatter(group, in, out, un::Sum{}, given, family);
                findings.expect(out == expected, "reduce_scatter " + where);
                std::vector<float> place = in;
                un::reduce_scatter(group, place, std::span(place).subspan(before(counts, rank), own), un::Sum{}, given,
                                   family);
                findings.expect(part(place, before(counts, rank), own) == expected, "reduce_scatter in place " + where);
            }
            for (int root = 0; root < world; root += 2) {
                if constexpr (un::schedule::offers<Family, un::Collective::gather> ||
                              std::same_as<Family, un::NativeSchedule>) {
                    std::vector<float> all(rank == root ? all_count : 0);
                    un::gather(group, mine, all, root, given, family);
                    if (rank == root) findings.expect(all == everything, "gather " + where);
                }
                if constexpr (un::schedule::offers<Family, un::Collective::scatter> ||
                              std::same_as<Family, un::NativeSchedule>) {
                    std::vector<float> out(own);
                    un::scatter(group, rank == root ? everything : std::vector<float>(), out, root, given, family);
                    findings.expect(out == mine, "scatter " + where);
                }
            }
            if constexpr (un::schedule::offers<Family, un::Collective::all_to_all> ||
                          std::same_as<Family, un::NativeSchedule>) {
                // Rank i sends (i + j) % 3 * scale elements to rank j, or `scale` to each.
                std::vector<std::size_t> sends(static_cast<std::size_t>(world), scale);
                std::vector<std::size_t> receives = sends;
                if (with_counts) {
                    for (int peer = 0; peer < world; ++peer) {
                        sends[static_cast<std::size_t>(peer)] = static_cast<std::size_t>((rank + peer) % 3) * scale;
                        receives[static_cast<std::size_t>(peer)] = static_cast<std::size_t>((peer + rank) % 3) * scale;
                    }
                }
                std::vector<int> in(sum(sends)), out(sum(receives)), expected;
                for (int peer = 0; peer < world; ++peer) {
                    for (std::size_t i = 0; i < sends[static_cast<std::size_t>(peer)]; ++i)
                        in[before(sends, peer) + i] = rank * 1000 + peer;
                    for (std::size_t i = 0; i < receives[static_cast<std::size_t>(peer)]; ++i)
                        expected.push_back(peer * 1000 + rank);
                }
                if (with_counts) un::all_to_all(group, in, out, sends, receives, family);
                else un::all_to_all(group, in, out, {}, {}, family);
                findings.expect(out == expected, "all_to_all " + where);
            }
        },
        test::limit);
}

} // namespace

BOOST_AUTO_TEST_SUITE(collective_others)

BOOST_AUTO_TEST_CASE(broadcast_and_reduce) {
    for (int world = 1; world <= 8; ++world) {
        for (const std::size_t count : {0u, 5u, 700u}) {
            check_broadcast_and_reduce(world, count, un::NativeSchedule{});
            check_broadcast_and_reduce(world, count, un::RingSchedule{});
            check_broadcast_and_reduce(world, count, un::RingSchedule{.chunk_bytes = 256});
            check_broadcast_and_reduce(world, count, un::TreeSchedule{});
            check_broadcast_and_reduce(world, count, un::TreeSchedule{.chunk_bytes = 256});
            check_broadcast_and_reduce(world, count, un::DirectSchedule{});
        }
    }
}

BOOST_AUTO_TEST_CASE(blocks) {
    for (int world = 1; world <= 8; ++world) {
        for (const bool with_counts : {false, true}) {
            for (const std::size_t scale : {1u, 100u}) {
                check_blocks(world, scale, with_counts, un::NativeSchedule{});
                check_blocks(world, scale, with_counts, un::RingSchedule{});
                check_blocks(world, scale, with_counts, un::TreeSchedule{});
                check_blocks(world, scale, with_counts, un::HalvingDoublingSchedule{});
                check_blocks(world, scale, with_counts, un::DirectSchedule{});
            }
        }
    }
}

BOOST_AUTO_TEST_CASE(barrier_holds_everybody) {
    test::Shared<std::atomic<int>> arrived;
    test::on_each_rank(5, [&](Group& group, test::Findings& findings) {
        for (int round = 1; round <= 50; ++round) {
            ++*arrived;
            if (round % 2 == 0) un::barrier(group);
            else un::barrier(group, un::TreeSchedule{});
            findings.expect(arrived->load() >= 5 * round, "a rank left before all had come");
            un::barrier(group);
        }
    });
}

BOOST_AUTO_TEST_CASE(send_and_receive) {
    test::on_each_rank(3, [&](Group& group, test::Findings& findings) {
        const int next = (group.rank() + 1) % 3;
        const int previous = (group.rank() + 2) % 3;
        for (const std::size_t count : {0u, 1u, 20u, 5000u}) {
            const auto mine = oracle::contribution<double>(group.rank(), count);
            std::vector<double> first(count), second(count), third(count);
            // Tag 7 twice: in order. Tag 9 is received before tag 7.
            un::Operation a = un::start_send(group, mine, next, 7);
            const std::vector<double> twos(count, 2.0);
            un::Operation b = un::start_send(group, twos, next, 7);
            const std::vector<double> nines(count, 9.0);
            un::Operation c = un::start_send(group, nines, next, 9);
            un::receive(group, third, previous, 9);
            un::receive(group, first, previous, 7);
            un::receive(group, second, previous, 7);
            a.wait();
            b.wait();
            c.wait();
            findings.expect(first == oracle::contribution<double>(previous, count), "first");
            findings.expect(second == twos, "second");
            findings.expect(third == nines, "third");
        }
    });
}

BOOST_AUTO_TEST_CASE(many_messages_to_a_rank_that_looks_elsewhere) {
    test::on_ranks(3, [&](Group& group, test::Findings& findings) {
        constexpr int many = 300;
        std::vector<int> numbers(many);
        std::iota(numbers.begin(), numbers.end(), 0);
        if (group.rank() == 0) { // floods rank 1, then frees rank 2, for which rank 1 waits
            std::vector<un::Operation> pending;
            for (int i = 0; i < many; ++i)
                pending.push_back(un::start_send(group, std::span(&numbers[static_cast<std::size_t>(i)], 1), 1, i));
            un::send(group, std::span(numbers), 2);
            for (auto& operation : pending) operation.wait();
        } else if (group.rank() == 2) {
            std::vector<int> got(many);
            un::receive(group, got, 0);
            un::send(group, got, 1);
        } else {
            std::vector<int> got(many);
            un::receive(group, got, 2);
            findings.expect(got == numbers, "through rank 2");
            for (int i = many; i-- > 0;) {
                int value = -1;
                un::receive(group, std::span(&value, 1), 0, i);
                findings.expect(value == i, "tag");
            }
        }
    });
}

BOOST_AUTO_TEST_CASE(groups_by_colour_and_key) {
    test::on_each_rank(7, [&](Group& group, test::Findings& findings) {
        Group rows = group.split(group.rank() / 3, group.rank());
        Group columns = group.split(group.rank() % 3, -group.rank());
        Group some = group.split(group.rank() == 4 ? un::no_colour : 2, 0);
        findings.expect(rows.size() == (group.rank() == 6 ? 1 : 3) && rows.rank() == group.rank() % 3, "rows");
        findings.expect(columns.size() == (group.rank() % 3 == 0 ? 3 : 2), "columns");
        if (group.rank() == 4) {
            findings.expect(some.size() == 0 && some.rank() == -1, "no group");
            findings.expect(test::is_refused([&] { un::barrier(some); }), "the empty group refuses");
            findings.expect(test::is_refused([&] { static_cast<void>(some.split(0, 0)); }),
                            "the empty group has no parts");
        } else {
            int one = 1;
            un::all_reduce(some, std::span(&one, 1));
            findings.expect(one == 6, "some");
        }
        for (int repeat = 0; repeat < 20; ++repeat) {
            int a = group.rank(), b = group.rank();
            un::Operation first = un::start_all_reduce(rows, std::span(&a, 1), un::Sum{}, un::RingSchedule{});
            un::Operation second = un::start_all_reduce(columns, std::span(&b, 1));
            second.wait();
            first.wait();
            const int row_sums[] = {0 + 1 + 2, 3 + 4 + 5, 6};
            const int column_sums[] = {0 + 3 + 6, 1 + 4, 2 + 5};
            findings.expect(a == row_sums[group.rank() / 3] && b == column_sums[group.rank() % 3], "sums");
        }
    });
}

// Copies that bypass the caches (from 16 MiB on), at unaligned addresses.
BOOST_AUTO_TEST_CASE(large_copies) {
    constexpr std::size_t each = (std::size_t{9} << 20) + 5;
    test::on_each_rank(2, [&](Group& group, test::Findings& findings) {
        const auto rank = static_cast<std::size_t>(group.rank());
        auto memory = group.template allocate<unsigned char>(3 * each + 3);
        const std::span<unsigned char> mine(memory.data() + 1, each), all(memory.data() + each + 3, 2 * each);
        const auto value = [](std::size_t of, std::size_t i) { return static_cast<unsigned char>(i * 3 + of * 11); };
        for (std::size_t i = 0; i < each; ++i) mine[i] = value(rank, i);
        un::all_gather(group, mine, all);
        bool right = true;
        for (std::size_t i = 0; i < all.size(); ++i) right = right && all[i] == value(i / each, i % each);
        findings.expect(right, "all_gather on rank " + std::to_string(rank));
        if (rank == 1) std::fill(all.begin(), all.end(), static_cast<unsigned char>(0));
        un::broadcast(group, all, 0);
        right = true;
        for (std::size_t i = 0; i < all.size(); ++i) right = right && all[i] == value(i / each, i % each);
        findings.expect(right, "broadcast on rank " + std::to_string(rank));
    });
}

BOOST_AUTO_TEST_SUITE_END()

// Every schedule on numbers, with uneven and empty blocks, in random orders, in place and not.
#include "on_hosts.hpp"

#include "interpreter.hpp"

#include <boost/test/unit_test.hpp>

#include "unisono/schedule/families.hpp"

#include <numeric>

namespace {

namespace un = unisono;
using unisono_test::Interpreter;
using unisono_test::Number;
using unisono_test::Vector;
using unisono_test::Written;

Number contribution(int rank, std::size_t element) {
    return Number{1000003} * (rank + 1) * (rank + 1) + Number{17} * static_cast<Number>(element) + rank;
}

struct Case {
    un::Collective what;
    std::string_view name;
    int world, root;
    bool in_place;
    unsigned seed;
};

/// Runs the ranks' lists of steps on numbers, and compares with the definition of the collective.
void compute_written(const Case& which, const std::vector<Written>& schedules, std::uint32_t blocks) {
    const auto [what, name, world, root, in_place, seed] = which;
    std::mt19937 random{seed};
    std::vector<std::size_t> sizes;
    for (std::uint32_t b = 0; b < blocks; ++b) sizes.push_back(what == un::Collective::all_to_all ? 3 : random() % 5);
    const std::size_t total = std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});

    // Input that a rank does not have, and output that it need not fill, is poison. Blocks that no
    // rank may touch must remain poison.
    const Number poison = Interpreter::poison;
    std::vector<Vector> inputs, outputs, wanted;
    const auto block_of = [&](std::size_t element) {
        std::uint32_t b = 0;
        for (std::size_t start = 0; element >= start + sizes[b]; start += sizes[b++]) {
        }
        return static_cast<int>(b);
    };
    for (int rank = 0; rank < world; ++rank) {
        Vector input(total, poison), output(total, poison), result(total, poison);
        for (std::size_t i = 0; i < total; ++i) {
            const int block = block_of(i);
            Number sum = 0;
            for (int from = 0; from < world; ++from) sum += contribution(from, i);
            switch (what) {
            case un::Collective::all_reduce: input[i] = contribution(rank, i), result[i] = sum; break;
            case un::Collective::reduce:
                input[i] = contribution(rank, i);
                if (rank == root) result[i] = sum;
                break;
            case un::Collective::reduce_scatter:
                input[i] = contribution(rank, i);
                if (block == rank) result[i] = sum;
                break;
            case un::Collective::all_gather:
                if (block == rank) input[i] = contribution(rank, i);
                result[i] = contribution(block, i);
                break;
            case un::Collective::gather:
                if (block == rank) input[i] = contribution(rank, i);
                if (rank == root) result[i] = contribution(block, i);
                break;
            case un::Collective::scatter:
                if (rank == root) input[i] = contribution(root, i);
                if (block == rank) result[i] = contribution(root, i);
                break;
            case un::Collective::broadcast:
                if (rank == root) output[i] = contribution(root, i);
                result[i] = contribution(root, i);
                break;
            case un::Collective::all_to_all:
                input[i] = contribution(rank, i);
                result[i] = contribution(block, static_cast<std::size_t>(rank) * 3 + i % 3);
                break;
            default: break;
            }
        }
        inputs.push_back(input), outputs.push_back(in_place ? input : output), wanted.push_back(result);
    }
    const auto inputs_before = inputs;
    Interpreter interpreter{schedules, sizes, inputs, outputs, in_place, seed};
    interpreter.run();

    BOOST_TEST(inputs == inputs_before);
    for (int rank = 0; rank < world; ++rank) {
        const auto r = static_cast<std::size_t>(rank);
        for (std::size_t i = 0; i < total; ++i) {
            const Number before = in_place ? inputs_before[r][i] : poison;
            const Number expected = wanted[r][i] == poison ? before : wanted[r][i];
            BOOST_TEST_REQUIRE(outputs[r][i] == expected, name << " on " << world << " ranks, root " << root
                                                               << ", seed " << seed << (in_place ? ", in place" : "")
                                                               << ": rank " << rank << " element " << i << " is "
                                                               << outputs[r][i] << ", expected " << expected);
        }
    }
}
template <class Family, un::Collective What>
void compute(int world, int root, bool in_place, unsigned seed) {
    if (in_place && (What == un::Collective::broadcast || What == un::Collective::all_to_all)) return;
    std::vector<Written> schedules;
    for (int rank = 0; rank < world; ++rank)
        schedules.push_back(unisono_test::write_out(un::schedule::schedule_of<What>(Family{}, {world, rank, root})));
    const auto first = un::schedule::schedule_of<What>(Family{}, {world, 0, root});
    compute_written({What, first.name, world, root, in_place, seed}, schedules, first.blocks());
}

template <class Family>
void compute_all() {
    for (const int world : {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 16, 17, 24, 31}) {
        for (const int root : {0, world / 2, world - 1}) {
            for (const bool in_place : {false, true}) {
                const auto seed = static_cast<unsigned>(100 * world + 10 * root + (in_place ? 1 : 0));
                un::schedule::for_each_collective<Family>([&](auto what) {
                    if constexpr (what != un::Collective::barrier) compute<Family, what>(world, root, in_place, seed);
                });
            }
        }
    }
}

} // namespace

BOOST_AUTO_TEST_SUITE(schedule_numbers)

BOOST_AUTO_TEST_CASE(ring) { compute_all<un::RingSchedule>(); }
BOOST_AUTO_TEST_CASE(tree) { compute_all<un::TreeSchedule>(); }
BOOST_AUTO_TEST_CASE(halving_doubling) { compute_all<un::HalvingDoublingSchedule>(); }
BOOST_AUTO_TEST_CASE(direct) { compute_all<un::DirectSchedule>(); }
BOOST_AUTO_TEST_CASE(exchange) { compute_all<un::ExchangeSchedule>(); }
BOOST_AUTO_TEST_CASE(mapped) { compute_all<un::MappedSchedule>(); }
BOOST_AUTO_TEST_CASE(staged) { compute_all<un::StagedSchedule>(); }
BOOST_AUTO_TEST_CASE(hierarchical) {
    compute_all<unisono_test::OnHosts<1>>();
    compute_all<unisono_test::OnHosts<2>>();
    compute_all<unisono_test::OnHosts<3>>();
    compute_all<unisono_test::OnHosts<8>>();
    compute_all<unisono_test::OnHosts<3, true>>();
}

BOOST_AUTO_TEST_SUITE_END()

#include "findings.hpp"
#include "oracle.hpp"

#include <unisono/group/engine.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

namespace un = unisono;

namespace {

template <class T, class Family, class Op>
void check(int world, std::size_t count, const Family& family, const Op& op, const std::string& what) {
    test::on_each_rank(world, [&](test::Group& group, test::Findings& findings) {
        const auto expected = oracle::reduced<T>(world, count, op);
        const std::string where = what + " world " + std::to_string(world) + " count " + std::to_string(count);
        for (int repeat = 0; repeat < 3; ++repeat) {
            const std::vector<T> in = oracle::contribution<T>(group.rank(), count);
            std::vector<T> out(count);
            un::all_reduce(group, in, out, op, family);
            findings.expect(oracle::equal(out, expected), where);
            findings.expect(oracle::equal(in, oracle::contribution<T>(group.rank(), count)), where + " input changed");
            std::vector<T> data = in;
            un::all_reduce(group, data, op, family);
            findings.expect(oracle::equal(data, expected), where + " in place");
        }
    });
}

template <class T, class Op>
void check_all_families(int world, std::size_t count, const Op& op) {
    check<T>(world, count, un::NativeSchedule{}, op, "native");
    check<T>(world, count, un::RingSchedule{}, op, "ring");
    check<T>(world, count, un::RingSchedule{.chunk_bytes = 256}, op, "ring in chunks");
    check<T>(world, count, un::TreeSchedule{}, op, "tree");
    check<T>(world, count, un::TreeSchedule{.chunk_bytes = 512}, op, "tree in chunks");
    check<T>(world, count, un::HalvingDoublingSchedule{}, op, "halving-doubling");
    check<T>(world, count, un::DirectSchedule{}, op, "direct");
    check<T>(world, count, un::MappedSchedule{}, op, "mapped");
}

struct Larger {
    int bias = 0;
    double operator()(double a, double b) const { return a > b ? a : b; }
};

struct Pair {
    float value = 0;
    int place = 0;
    friend bool operator==(const Pair&, const Pair&) = default;
};
struct LargestPair {
    Pair operator()(Pair a, Pair b) const {
        return a.value > b.value || (a.value == b.value && a.place < b.place) ? a : b;
    }
};

} // namespace

BOOST_AUTO_TEST_SUITE(collective_all_reduce)

BOOST_AUTO_TEST_CASE(every_family_and_world) {
    for (int world = 1; world <= 9; ++world) {
        for (const std::size_t count : {0u, 1u, 7u, 1000u}) check_all_families<float>(world, count, un::Sum{});
    }
}

BOOST_AUTO_TEST_CASE(every_element_type) {
    check_all_families<double>(3, 1001, un::Sum{});
    check_all_families<un::bfloat16>(3, 1001, un::Sum{});
    check_all_families<un::float16>(3, 1001, un::Sum{});
    check_all_families<std::int32_t>(3, 1001, un::Sum{});
    check_all_families<std::int64_t>(3, 1001, un::Sum{});
    check_all_families<std::uint8_t>(3, 1001, un::Sum{});
    check_all_families<std::uint32_t>(3, 1001, un::Sum{});
    check_all_families<std::size_t>(3, 1001, un::Sum{});
    check_all_families<unsigned long long>(3, 9, un::Product{});
}

BOOST_AUTO_TEST_CASE(every_operation) {
    check_all_families<std::int32_t>(4, 100, un::Product{});
    check_all_families<float>(4, 100, un::Min{});
    check_all_families<std::uint8_t>(4, 100, un::Max{});
    check_all_families<double>(4, 100, Larger{});
}

// Not as signed numbers: each rank gives one above the greatest of them, and one below.
BOOST_AUTO_TEST_CASE(large_unsigned_numbers) {
    test::Findings findings(3);
    test::run(3, [&](test::Group& group) {
        const auto rank = static_cast<std::size_t>(group.rank());
        std::size_t most = (std::size_t{1} << 63) + rank, least = rank == 1 ? 5 : most;
        std::array<std::uint32_t, 2> both = {0x80000000u + static_cast<std::uint32_t>(rank), 7};
        for (int repeated = 0; repeated < 2; ++repeated) {
            un::all_reduce(group, most, un::Max{});
            un::all_reduce(group, least, un::Min{});
            un::all_reduce(group, both, un::Max{}, un::TreeSchedule{});
        }
        findings.expect(most == (std::size_t{1} << 63) + 2 && least == 5, "64 bits");
        findings.expect(both[0] == 0x80000002u && both[1] == 7, "32 bits");
    });
}

BOOST_AUTO_TEST_CASE(a_users_type_and_operation) {
    test::Findings findings{3};
    test::run(3, [&](test::Group& group) {
        std::vector<Pair> pairs(10, Pair{static_cast<float>(group.rank() % 2), group.rank()});
        un::all_reduce(group, pairs, LargestPair{}, un::TreeSchedule{});
        for (const Pair& pair : pairs) findings.expect(pair == Pair{1.0f, 1}, "largest pair");
    });
}

BOOST_AUTO_TEST_CASE(large_data) {
    check<float>(2, 3'000'001, un::NativeSchedule{}, un::Sum{}, "native");
    check<float>(3, 1'000'003, un::RingSchedule{.chunk_bytes = 1 << 18}, un::Sum{}, "ring in chunks");
    check<double>(5, 300'007, un::HalvingDoublingSchedule{}, un::Sum{}, "halving-doubling");
}

BOOST_AUTO_TEST_CASE(a_weighted_mean) {
    test::Findings findings{4};
    test::run(4, [&](test::Group& group) {
        // Weights 0, 1, 2, 3 of values rank + i: the mean is sum(r (r + i)) / 6 = 14 / 6 + i.
        for (const std::size_t count : {1u, 5u, 1000u}) {
            std::vector<double> data(count);
            for (std::size_t i = 0; i < count; ++i) data[i] = group.rank() + static_cast<double>(i);
            un::Operation pending =
                un::start_all_reduce(group, data, un::WeightedMean{.weight = static_cast<double>(group.rank())});
            pending.wait();
            for (std::size_t i = 0; i < count; ++i) {
                findings.expect(std::abs(data[i] - (14.0 / 6.0 + static_cast<double>(i))) <
                                    1e-12 * (1.0 + static_cast<double>(i)),
                                "mean");
            }
            std::vector<float> nothing(count, 3.0f);
            un::all_reduce(group, nothing, un::WeightedMean{.weight = 0.0}, un::RingSchedule{});
            findings.expect(nothing == std::vector<float>(count, 0.0f), "no weight at all");
        }
    });
}

BOOST_AUTO_TEST_CASE(a_mean_that_is_refused_leaves_its_data) {
    test::Findings findings{1};
    test::run(1, [&](test::Group& group) {
        std::vector<float> data(100'000, 1.0f);
        bool refused = false;
        try {
            un::all_reduce(group, data, un::WeightedMean{.weight = 3.0}, un::StagedSchedule{});
        } catch (const un::error&) {
            refused = true;
        }
        findings.expect(refused && data == std::vector<float>(100'000, 1.0f), "refused, and untouched");
    });
}

BOOST_AUTO_TEST_CASE(a_mean_that_nobody_waited_for_is_left_alone) {
    test::on_each_rank(2, [&](test::Group& group, test::Findings& findings) {
        std::vector<float> data(5, 1.0f);
        un::Operation mean = un::start_all_reduce(group, data, un::WeightedMean{.weight = 3.0});
        const auto done = [&] { return group.engine().is_idle(); };
        const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
        while (!done() && std::chrono::steady_clock::now() < until) group.progress();
        findings.expect(done(), "not done");
        std::fill(data.begin(), data.end(), 7.0f); // it is the program's again, or is freed
        mean = {};
        findings.expect(data == std::vector<float>(5, 7.0f), "divided");
        un::barrier(group);
    });
}

BOOST_AUTO_TEST_CASE(weights_of_a_mean) {
    constexpr float infinity = std::numeric_limits<float>::infinity();
    constexpr float nan = std::numeric_limits<float>::quiet_NaN();
    test::on_each_rank(2, [&](test::Group& group, test::Findings& findings) {
        const auto mean = [&](double mine, float x, const auto& family) {
            std::vector<float> data(7, x);
            un::all_reduce(group, data, un::WeightedMean{.weight = mine}, family);
            return data.back();
        };
        const auto all = [&](const auto& family, const std::string& what) {
            const bool first = group.rank() == 0;
            // Ordinary weights: one rounding each of products, sum and quotient.
            const float expected = (3.0f * 0.1f + 0.5f * 0.7f) / 3.5f;
            findings.expect(mean(first ? 3 : 0.5, first ? 0.1f : 0.7f, family) == expected, what + " bits");
            findings.expect(mean(0x1p-64, 1.0f, family) == 1.0f, what + " the least weight");
            findings.expect(mean(0x1p64, 1.0f, family) == 1.0f, what + " the greatest weight");
            for (const float nothing : {nan, infinity, -infinity}) { // of a rank without data
                findings.expect(mean(first ? 2 : 0, first ? 5.0f : nothing, family) == 5.0f, what + " weight 0");
                findings.expect(mean(0, nothing, family) == 0.0f, what + " no weight at all");
            }
            // Refused on each rank; the group remains usable.
            for (const double weight : {1e-50, 1e39, -1.0}) {
                bool refused = false;
                try {
                    mean(weight, 1.0f, family);
                } catch (const un::error& e) {
                    refused = e.code() == un::ErrorCode::bad_input;
                }
                findings.expect(refused, what + " refused");
            }
        };
        all(un::NativeSchedule{}, "native");
        all(un::RingSchedule{}, "ring");
    });
}

BOOST_AUTO_TEST_CASE(all_ranks_get_the_same_bits) {
    for (int world = 2; world <= 7; ++world) {
        test::Findings findings{world};
        const auto collect = [&](const auto& family) {
            test::run(world, [&](test::Group& group) {
                std::vector<float> data(999);
                for (std::size_t i = 0; i < data.size(); ++i) {
                    data[i] = 1.0f / static_cast<float>(3 + group.rank() * 17 + static_cast<int>(i) % 101);
                }
                un::all_reduce(group, data, un::Sum{}, family);
                std::vector<float> first = data;
                un::broadcast(group, first, 0, un::TreeSchedule{});
                findings.expect(data == first, "rank " + std::to_string(group.rank()) + " has other bits");
            });
        };
        collect(un::NativeSchedule{});
        collect(un::RingSchedule{});
        collect(un::TreeSchedule{});
        collect(un::HalvingDoublingSchedule{});
        collect(un::DirectSchedule{});
    }
}

BOOST_AUTO_TEST_CASE(several_in_flight_waited_for_in_different_orders) {
    test::on_each_rank(3, [&](test::Group& group, test::Findings& findings) {
        test::Group other = group.split(0, -group.rank());
        findings.expect(other.rank() == 2 - group.rank(), "key order");
        std::vector<std::vector<float>> data;
        for (int i = 0; i < 40; ++i)
            data.push_back(oracle::contribution<float>(group.rank(), 30 + static_cast<std::size_t>(i) * 50));
        std::vector<un::Operation> pending;
        for (std::size_t i = 0; i < data.size(); ++i) {
            auto& where = i % 3 == 0 ? other : group;
            if (i % 4 == 0) pending.push_back(un::start_all_reduce(where, data[i], un::Sum{}, un::RingSchedule{}));
            else if (i % 4 == 1)
                pending.push_back(
                    un::start_all_reduce(where, data[i], un::Sum{}, un::TreeSchedule{.chunk_bytes = 300}));
            else pending.push_back(un::start_all_reduce(where, data[i]));
        }
        if (group.rank() == 1) {
            for (std::size_t i = pending.size(); i-- > 0;) pending[i].wait();
        } else if (group.rank() == 2) {
            for (std::size_t i = 0; i < pending.size(); ++i) pending[(i * 7) % pending.size()].wait();
        } else {
            for (auto& operation : pending) {
                while (!operation.poll()) {
                }
            }
        }
        for (std::size_t i = 0; i < data.size(); ++i) {
            findings.expect(oracle::equal(data[i], oracle::reduced<float>(3, data[i].size(), un::Sum{})),
                            "operation " + std::to_string(i));
        }
    });
}

BOOST_AUTO_TEST_SUITE_END()

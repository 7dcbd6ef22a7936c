// Sums on a grid as collectives have the same bits by every schedule, over any number of ranks,
// from any grouping. All ranks detect what cannot be summed.
#include "findings.hpp"
#include "oracle.hpp"

#include <unisono/arithmetic/narrow_grid.hpp>
#include <unisono/collective/reproducible_sum.hpp>

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace un = unisono;

namespace {

/// Numbers with a wide range of exponents, a pure function of addend and index.
template <class T>
std::vector<T> addend(int which, std::size_t count) {
    std::vector<T> values(count);
    un::CounterRandom random(7, static_cast<std::uint32_t>(which));
    for (T& x : values) {
        const std::uint32_t bits = random();
        const double fraction = static_cast<double>(random.uniform()) - 0.5;
        x = static_cast<T>(static_cast<float>(std::ldexp(fraction, static_cast<int>(bits % 24) - 12)));
    }
    return values;
}
double weight_of(int which) { return 1 + 0.1 * which; }

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
    return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

/// All addends on one rank.
template <class T>
std::vector<T> alone(int addends, std::size_t count, bool weighted) {
    std::int32_t needed = un::Grid::nothing;
    for (int i = 0; i < addends; ++i) {
        const auto x = addend<T>(i, count);
        needed = std::max(needed, un::needed_exponent(std::span<const T>(x), weighted ? weight_of(i) : 2.0));
    }
    const un::Grid grid = un::Grid::above<T>(needed, addends);
    std::vector<std::int64_t> image(count);
    for (int i = 0; i < addends; ++i) {
        const auto x = addend<T>(i, count);
        un::add_to_grid(std::span(image), std::span<const T>(x), weighted ? weight_of(i) : 2.0, grid);
    }
    std::vector<T> sum(count);
    un::from_grid(std::span(sum), std::span<const std::int64_t>(image), grid);
    return sum;
}

template <class T, class Family>
void check_one_each(int world, std::size_t count, const Family& family, const std::string& what) {
    test::on_each_rank(world, [&](test::Group& group, test::Findings& findings) {
        const std::string where = what + " world " + std::to_string(world) + " count " + std::to_string(count);
        for (const bool weighted : {false, true}) {
            std::vector<T> data = addend<T>(group.rank(), count);
            un::reproducible_sum(group, data, weighted ? weight_of(group.rank()) : 2.0, family);
            findings.expect(same_bits(data, alone<T>(world, count, weighted)), where);
            // Memory that peers read without a copy.
            auto shared = group.template allocate<T>(count);
            const auto own = addend<T>(group.rank(), count);
            std::copy(own.begin(), own.end(), shared.data());
            un::reproducible_sum(group, std::span<T>(shared.data(), count), weighted ? weight_of(group.rank()) : 2.0,
                                 family);
            findings.expect(same_bits(std::vector<T>(shared.data(), shared.data() + count), data), where + " shared");
        }
    });
}

/// L addends, given to the ranks in blocks. This family and collective add images.
template <class T, class Family>
void check_hosted(int world, int addends, std::size_t count, const Family& family, const std::string& what) {
    const auto expected = alone<T>(addends, count, true);
    test::on_each_rank(world, [&](test::Group& group, test::Findings& findings) {
        const std::string where = what + " world " + std::to_string(world);
        const int begin = addends * group.rank() / group.size();
        const int end = addends * (group.rank() + 1) / group.size();
        std::int32_t needed = un::Grid::nothing;
        for (int i = begin; i < end; ++i) {
            const auto x = addend<T>(i, count);
            needed = std::max(needed, un::needed_exponent(std::span<const T>(x), weight_of(i)));
        }
        const un::Grid grid = un::agree_on_grid<T>(group, needed, addends);
        std::vector<std::int64_t> image(count);
        for (int i = end; i-- > begin;) {
            const auto x = addend<T>(i, count);
            un::add_to_grid(std::span(image), std::span<const T>(x), weight_of(i), grid);
        }
        std::vector<std::int64_t> all(count);
        un::all_reduce(group, image, all, un::GridSum{}, family);
        std::vector<T> sum(count);
        un::from_grid(std::span(sum), std::span<const std::int64_t>(all), grid);
        findings.expect(same_bits(sum, expected), where + " all_reduce");
        const un::NarrowGrid narrow = un::NarrowGrid::above<T>(grid.exponent, addends);
        std::vector<std::int32_t> small(count);
        for (int i = begin; i < end; ++i) {
            const auto x = addend<T>(i, count);
            un::add_to_grid(std::span(small), std::span<const T>(x), weight_of(i), narrow);
        }
        un::all_reduce(group, small, un::GridSum{}, family);
        bool near = true;
        // Within half a step per addend of the finer one.
        for (std::size_t i = 0; i < count; ++i) {
            const double wide = std::ldexp(static_cast<double>(all[i]), grid.exponent - 51);
            const double found = std::ldexp(static_cast<double>(small[i]), narrow.exponent - narrow.bits);
            near = near && std::abs(found - wide) <= addends * std::ldexp(1.01, narrow.exponent - narrow.bits - 1);
        }
        findings.expect(near, where + " 4 bytes");
        std::vector<std::int64_t> rooted(count);
        if constexpr (std::same_as<Family, un::NativeSchedule> ||
                      un::schedule::offers<Family, un::Collective::reduce>) {
            un::reduce(group, image, rooted, world - 1, un::GridSum{}, family);
            if (group.rank() == world - 1) findings.expect(rooted == all, where + " reduce");
        }
    });
}

template <class Check>
void every_family(Check check) {
    check(un::NativeSchedule{}, "native");
    check(un::RingSchedule{}, "ring");
    check(un::RingSchedule{.chunk_bytes = 256}, "ring in chunks");
    check(un::TreeSchedule{}, "tree");
    check(un::HalvingDoublingSchedule{}, "halving-doubling");
    check(un::DirectSchedule{}, "direct");
}

} // namespace

BOOST_AUTO_TEST_SUITE(collective_reproducible_sum)

BOOST_AUTO_TEST_CASE(every_schedule_and_world_gives_the_sum_of_one_rank) {
    for (const int world : {1, 2, 3, 5})
        for (const std::size_t count : {1u, 58u, 3001u})
            every_family(
                [&](const auto& family, const char* what) { check_one_each<float>(world, count, family, what); });
    every_family([&](const auto& family, const char* what) { check_one_each<double>(3, 777, family, what); });
    check_one_each<un::bfloat16>(4, 333, un::NativeSchedule{}, "bf16");
    check_one_each<un::float16>(4, 333, un::NativeSchedule{}, "fp16");
    check_one_each<un::float16>(4, 333, un::RingSchedule{}, "fp16 ring");
    check_one_each<float>(2, 0, un::NativeSchedule{}, "nothing");
}

BOOST_AUTO_TEST_CASE(who_hosts_which_addend_does_not_matter) {
    for (int world = 1; world <= 6; ++world)
        every_family([&](const auto& family, const char* what) { check_hosted<float>(world, 6, 500, family, what); });
    check_hosted<double>(4, 7, 100, un::RingSchedule{}, "double");
    check_hosted<un::bfloat16>(3, 8, 100, un::NativeSchedule{}, "bf16");
}

BOOST_AUTO_TEST_CASE(what_is_not_finite_is_an_error_of_all_ranks_and_the_group_goes_on) {
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
        test::on_each_rank(3, [&](test::Group& group, test::Findings& findings) {
            std::vector<float> data(100, 1.0f);
            if (group.rank() == 1) data[77] = bad;
            bool refused = false;
            try {
                un::reproducible_sum(group, data);
            } catch (const un::error& e) {
                refused = e.code() == un::ErrorCode::not_finite && e.rank() == 1;
            }
            findings.expect(refused, "refused");
            findings.expect(data[0] == 1.0f, "unchanged");
            // By hand: the mark reaches all ranks.
            std::vector<std::int64_t> image(100);
            un::add_to_grid(std::span(image), std::span<const float>(data), 1.0, un::Grid{2});
            un::all_reduce(group, image, un::GridSum{}, un::RingSchedule{});
            std::vector<float> sum(100);
            const auto first = un::from_grid(std::span(sum), std::span<const std::int64_t>(image), un::Grid{2});
            findings.expect(first == 77 && std::isnan(sum[77]) && sum[76] == 3.0f, "marked");
            data[77] = 5.0f;
            un::reproducible_sum(group, data);
            findings.expect(data[77] == 15.0f && data[0] == 3.0f, "goes on");
        });
    }
}

BOOST_AUTO_TEST_CASE(other_counts_are_a_mismatch_on_all_ranks) {
    for (const auto& counts : {std::pair{2, 3}, {0, 3}, {3, 0}}) {
        const int first = counts.first, second = counts.second; // clang 14 captures no bindings
        for (const bool equal_weights : {true, false}) {        // from their memory, or by images
            test::Findings findings{2};
            const auto sum = [&](test::Group& group) {
                std::vector<float> data(static_cast<std::size_t>(group.rank() == 0 ? first : second), 1.0f);
                un::reproducible_sum(group, data, equal_weights ? 1.0 : 1.0 + group.rank());
            };
            const std::string where = std::to_string(first) + " and " + std::to_string(second);
            try {
                test::run(
                    2,
                    [&](test::Group& group) {
                        try {
                            sum(group);
                            findings.expect(false, where + " on rank " + std::to_string(group.rank()));
                        } catch (const un::error& failed) {
                            findings.expect(failed.code() == un::ErrorCode::mismatch, failed.what());
                            throw;
                        }
                    },
                    test::limit);
                findings.expect(false, where + ": no error");
            } catch (const un::error& failed) {
                findings.expect(failed.code() == un::ErrorCode::mismatch, failed.what());
            }
        }
    }
}

BOOST_AUTO_TEST_SUITE_END()

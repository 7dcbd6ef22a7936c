// Collectives by the device, on its memory and on the host's: by the library, and by Unisono's
// schedules.
#include "support.hpp"
#include "support/skip.hpp"

#include <cstdint>
#include <limits>
#include <numeric>

namespace un = unisono;
using test::download;
using test::Group;
using test::upload;

namespace {

template <class T, class Op, class Family>
void check_on_device(Group& group, test::Findings& findings, std::size_t count, const Op& op, const Family& family) {
    const auto mine = oracle::contribution<T>(group.rank(), count);
    const auto expected = oracle::reduced<T>(group.size(), count, op);
    const std::string name = std::string(Family::name) + " of " + std::to_string(count) + " " +
                             std::string(un::name_of(un::element_type_of<T>)) + " on " + std::to_string(group.size());
    const auto in = upload(group, mine);
    const auto out = un::allocate_on_device<T>(group, count);
    un::all_reduce(group, in.span(), out.span(), op, family);
    findings.expect(oracle::equal(download(out.span()), expected), name);
    findings.expect(oracle::equal(download(in.span()), mine), name + ": the input");
    un::all_reduce(group, in.span(), op, family);
    findings.expect(oracle::equal(download(in.span()), expected), name + " in place");
}

template <class T>
void check_type(Group& group, test::Findings& findings) {
    for (const std::size_t count : {1u, 1000u}) {
        check_on_device<T>(group, findings, count, un::Sum{}, un::NativeSchedule{});
        check_on_device<T>(group, findings, count, un::Max{}, un::NativeSchedule{});
        std::vector<T> host = oracle::contribution<T>(group.rank(), count); // through pinned memory
        un::all_reduce(group, host, un::Min{});
        findings.expect(oracle::equal(host, oracle::reduced<T>(group.size(), count, un::Min{})), "min on the host");
    }
}

/// Blocks of all ranks in order: of `count` elements each, or of individual counts.
std::vector<int> blocks(int ranks, const std::vector<std::size_t>& counts) {
    std::vector<int> all;
    for (int rank = 0; rank < ranks; ++rank) {
        const auto one = oracle::contribution<int>(rank, counts[static_cast<std::size_t>(rank)]);
        all.insert(all.end(), one.begin(), one.end());
    }
    return all;
}

struct Pair {
    float a = 0;
    std::int16_t b = 0;
    friend bool operator==(const Pair&, const Pair&) = default;
};

/// Keeps the element of larger magnitude.
struct Farthest {
    UNISONO_INLINE float operator()(float a, float b) const {
        const float x = a < 0 ? -a : a;
        const float y = b < 0 ? -b : b;
        return x < y ? b : a;
    }
};

} // namespace

BOOST_AUTO_TEST_SUITE(nccl_collectives)

BOOST_AUTO_TEST_CASE(all_reduce_of_every_type) {
    const test::Clean clean;
    for (int world = 1; world <= test::at_most(5); ++world) {
        test::on_ranks(world, [&](Group& group, test::Findings& findings) {
            check_type<float>(group, findings);
            check_type<double>(group, findings);
            check_type<un::bfloat16>(group, findings);
            check_type<un::float16>(group, findings);
            check_type<std::int32_t>(group, findings);
            check_type<std::int64_t>(group, findings);
            check_type<unsigned char>(group, findings);
            check_on_device<float>(group, findings, 100, un::Product{}, un::NativeSchedule{});
        });
    }
}

BOOST_AUTO_TEST_CASE(our_own_schedules) {
    const test::Clean clean;
    for (const int world : {1, 2, 3, 5}) {
        if (world > test::at_most(5)) continue;
        test::on_ranks(world, [&](Group& group, test::Findings& findings) {
            for (const std::size_t count : {0u, 3000u}) {
                check_on_device<float>(group, findings, count, un::Sum{}, un::RingSchedule{.chunk_bytes = 4096});
                check_on_device<float>(group, findings, count, un::Sum{}, un::TreeSchedule{});
                check_on_device<float>(group, findings, count, un::Sum{}, un::HalvingDoublingSchedule{});
                check_on_device<float>(group, findings, count, un::Sum{}, un::DirectSchedule{});
                check_on_device<float>(group, findings, count, un::Sum{}, un::ExchangeSchedule{});
                check_on_device<un::bfloat16>(group, findings, count, un::Sum{}, un::RingSchedule{});
                check_on_device<float>(group, findings, count, Farthest{}, un::RingSchedule{});
            }
        });
    }
}

/// NCCL sends much data in another way than little, without buffers of its own if it can.
BOOST_AUTO_TEST_CASE(much_data_by_our_own_schedules) {
    const test::Clean clean;
    test::on_ranks(test::at_most(3), [&](Group& group, test::Findings& findings) {
        const auto mine = oracle::contribution<float>(group.rank(), 300'000);
        const auto expected = oracle::reduced<float>(group.size(), mine.size(), un::Sum{});
        const auto check = [&](const auto& family) {
            const auto data = upload(group, mine);
            un::all_reduce(group, data.span(), un::Sum{}, family);
            findings.expect(oracle::equal(download(data.span()), expected), std::string(family.name));
        };
        check(un::RingSchedule{});
        check(un::TreeSchedule{});
        check(un::HalvingDoublingSchedule{});
    });
}

/// Numbers that are rounded on the way get the same result as with the same schedule on threads.
BOOST_AUTO_TEST_CASE(our_own_schedules_have_the_bits_of_the_host) {
    const int world = test::at_most(4);
    const auto numbers = [](int rank) {
        std::vector<float> values(3001);
        un::Mt19937 generator(static_cast<std::uint32_t>(rank + 1));
        un::torch_rand(generator, std::span<float>(values));
        return values;
    };
    std::vector<float> expected;
    un::run<un::InProcess>(world, [&](auto& group) {
        auto values = numbers(group.rank());
        un::all_reduce(group, values, un::Sum{}, un::RingSchedule{.chunk_bytes = 4096});
        if (group.rank() == 0) expected = values;
    });
    test::on_ranks(world, [&](Group& group, test::Findings& findings) {
        const auto values = upload(group, numbers(group.rank()));
        un::all_reduce(group, values.span(), un::Sum{}, un::RingSchedule{.chunk_bytes = 4096});
        findings.expect(download(values.span()) == expected, "other bits");
    });
}

BOOST_AUTO_TEST_CASE(the_other_collectives_on_the_host) {
    const test::Clean clean;
    for (int world = 1; world <= test::at_most(4); ++world) {
        test::on_ranks(world, [&](Group& group, test::Findings& findings) {
            const auto ranks = static_cast<std::size_t>(world);
            const auto me = static_cast<std::size_t>(group.rank());
            const int root = world - 1;
            for (const bool equal : {true, false}) {
                std::vector<std::size_t> counts(ranks, 50);
                for (std::size_t i = 0; i < ranks && !equal; ++i) counts[i] = 20 * i;
                const std::span<const std::size_t> said = equal ? std::span<const std::size_t>() : counts;
                const auto mine = oracle::contribution<int>(group.rank(), counts[me]);
                const auto expected = blocks(world, counts);
                std::vector<int> all(expected.size()), part(counts[me]);
                un::all_gather(group, mine, all, said);
                findings.expect(all == expected, "all_gather");
                un::reduce_scatter(group, all, part, un::Sum{}, said);
                bool right = true;
                for (std::size_t i = 0; i < part.size(); ++i) right = right && part[i] == world * mine[i];
                findings.expect(right, "reduce_scatter");
                std::fill(all.begin(), all.end(), 0);
                un::gather(group, mine, all, root, said);
                findings.expect(group.rank() != root || all == expected, "gather");
                un::scatter(group, group.rank() == root ? expected : std::vector<int>(), part, root, said);
                findings.expect(part == mine, "scatter");
            }
            std::vector<int> data = oracle::contribution<int>(group.rank(), 99), sum(99);
            un::reduce(group, data, sum, root);
            findings.expect(group.rank() != root || sum == oracle::reduced<int>(world, 99, un::Sum{}), "reduce");
            un::broadcast(group, data, root);
            findings.expect(data == oracle::contribution<int>(root, 99), "broadcast");
            std::vector<Pair> pairs(17, group.rank() == root ? Pair{1.5f, 7} : Pair{});
            un::broadcast(group, pairs, root);
            findings.expect(pairs == std::vector<Pair>(17, Pair{1.5f, 7}), "elements of a user's own type");
            std::vector<int> out(10 * ranks), in(out.size());
            for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<int>(100 * me + i / 10);
            un::all_to_all(group, out, in);
            bool right = true;
            for (std::size_t i = 0; i < in.size(); ++i) right = right && in[i] == static_cast<int>(100 * (i / 10) + me);
            findings.expect(right, "all_to_all");
            un::barrier(group);
        });
    }
}

BOOST_AUTO_TEST_CASE(the_other_collectives_on_the_device) {
    const test::Clean clean;
    const int world = test::at_most(4);
    const auto all_of_them = [&](Group& group, test::Findings& findings, const auto& family,
                                 const auto& family_to_all) {
        const auto ranks = static_cast<std::size_t>(world);
        const auto me = static_cast<std::size_t>(group.rank());
        const int root = world / 2;
        for (const bool equal : {true, false}) {
            std::vector<std::size_t> counts(ranks, 50);
            for (std::size_t i = 0; i < ranks && !equal; ++i) counts[i] = 30 * (ranks - 1 - i);
            const std::span<const std::size_t> said = equal ? std::span<const std::size_t>() : counts;
            const auto expected = blocks(world, counts);
            const std::vector<int> own = oracle::contribution<int>(group.rank(), counts[me]);
            const auto mine = upload(group, own);
            const auto all = un::allocate_on_device<int>(group, expected.size());
            un::all_gather(group, mine.span(), all.span(), said, family_to_all);
            findings.expect(download(all.span()) == expected, "all_gather");
            const auto part = un::allocate_on_device<int>(group, counts[me]);
            un::reduce_scatter(group, all.span(), part.span(), un::Sum{}, said, family_to_all);
            auto summed = download(part.span());
            for (int& one : summed) one /= world;
            findings.expect(summed == own, "reduce_scatter");
            const auto gathered = upload(group, std::vector<int>(expected.size()));
            un::gather(group, mine.span(), gathered.span(), root, said, family);
            findings.expect(group.rank() != root || download(gathered.span()) == expected, "gather");
            un::scatter(group, all.span(), part.span(), root, said, family);
            findings.expect(download(part.span()) == own, "scatter");
        }
        const auto data = upload(group, oracle::contribution<int>(group.rank(), 99));
        const auto sum = un::allocate_on_device<int>(group, 99);
        un::reduce(group, data.span(), sum.span(), root, un::Sum{}, family);
        findings.expect(group.rank() != root || download(sum.span()) == oracle::reduced<int>(world, 99, un::Sum{}),
                        "reduce");
        un::broadcast(group, data.span(), root, family);
        findings.expect(download(data.span()) == oracle::contribution<int>(root, 99), "broadcast");
    };
    test::on_ranks(world, [&](Group& group, test::Findings& findings) {
        all_of_them(group, findings, un::NativeSchedule{}, un::NativeSchedule{});
        all_of_them(group, findings, un::TreeSchedule{}, un::HalvingDoublingSchedule{});
        const auto ranks = static_cast<std::size_t>(world);
        const auto me = static_cast<std::size_t>(group.rank());
        // Rank i sends i + j elements to rank j.
        std::vector<std::size_t> send(ranks), receive(ranks);
        for (std::size_t i = 0; i < ranks; ++i) send[i] = receive[i] = i + me;
        const std::size_t total = std::accumulate(send.begin(), send.end(), std::size_t{0});
        const auto out = upload(group, std::vector<int>(total, group.rank()));
        const auto in = un::allocate_on_device<int>(group, total);
        un::all_to_all(group, out.span(), in.span(), send, receive);
        std::vector<int> expected;
        for (std::size_t i = 0; i < ranks; ++i) expected.insert(expected.end(), receive[i], static_cast<int>(i));
        findings.expect(download(in.span()) == expected, "all_to_all with counts");
    });
}

BOOST_AUTO_TEST_CASE(weighted_means) {
    const test::Clean clean;
    const int world = test::at_most(3);
    test::on_ranks(world, [&](Group& group, test::Findings& findings) {
        const double weight = group.rank(); // rank 0 has weight zero
        double sum = 0, weights = 0;
        for (int rank = 0; rank < world; ++rank) sum += rank * (rank + 1.0), weights += rank;
        const double nothing = std::numeric_limits<double>::quiet_NaN(); // ignored
        const auto data = upload(group, std::vector<double>(100, weight == 0 ? nothing : group.rank() + 1.0));
        un::all_reduce(group, data.span(), un::WeightedMean{weight});
        const double expected = weights == 0 ? 0 : sum / weights;
        for (const double one : download(data.span()))
            findings.expect(one - expected < 1e-12 && expected - one < 1e-12, "mean on the device");
        const auto halves = upload(group, std::vector<un::float16>(50, un::float16(2.0f)));
        un::all_reduce(group, halves.span(), un::WeightedMean{1.0});
        for (const un::float16 one : download(halves.span()))
            findings.expect(float(one) > 1.99f && float(one) < 2.01f, "mean of halves");
        // The host multiplies and divides.
        std::vector<float> host(100, static_cast<float>(group.rank() + 1));
        un::all_reduce(group, host, un::WeightedMean{weight});
        findings.expect(weights == 0 || host[99] == static_cast<float>(sum) / static_cast<float>(weights),
                        "mean on the host");
    });
}

BOOST_AUTO_TEST_CASE(several_in_flight_and_groups_of_some) {
    const test::Clean clean;
    const int world = test::at_most(4);
    test::on_ranks(world, [&](Group& group, test::Findings& findings) {
        Group half = group.split(group.rank() % 2, -group.rank()); // in reverse order
        Group none = group.split(group.rank() == 0 ? un::no_colour : 0, 0);
        std::vector<std::vector<float>> data;
        std::vector<un::DeviceMemory<float>> on_device;
        for (std::size_t i = 0; i < 12; ++i) {
            const int rank = i % 2 == 0 ? group.rank() : half.rank();
            data.push_back(oracle::contribution<float>(rank, 10 + i * 300));
            on_device.push_back(upload(group, data.back()));
        }
        std::vector<un::Operation> pending;
        for (std::size_t i = 0; i < data.size(); ++i) {
            Group& where = i % 2 == 0 ? group : half;
            pending.push_back(un::start_all_reduce(where, data[i]));
            if (i % 4 < 2) pending.push_back(un::start_all_reduce(where, on_device[i].span()));
            else pending.push_back(un::start_all_reduce(where, on_device[i].span(), un::Sum{}, un::RingSchedule{}));
        }
        for (std::size_t i = 0; i < pending.size(); ++i) pending[group.rank() == 1 ? pending.size() - 1 - i : i].wait();
        for (std::size_t i = 0; i < data.size(); ++i) {
            const auto expected =
                oracle::reduced<float>(i % 2 == 0 ? group.size() : half.size(), data[i].size(), un::Sum{});
            findings.expect(oracle::equal(data[i], expected), "operation " + std::to_string(i));
            findings.expect(oracle::equal(download(on_device[i].span()), expected),
                            "operation on the device " + std::to_string(i));
        }
        if (group.rank() != 0) {
            std::vector<int> one(5, 1);
            un::all_reduce(none, one);
            findings.expect(one[0] == group.size() - 1, "all but one rank");
        }
    });
}

BOOST_AUTO_TEST_CASE(memory_of_the_groups) {
    const test::Clean clean;
    un::Memory<float> kept;
    un::DeviceMemory<float> kept_on_device;
    test::on_ranks(test::at_most(2), [&](Group& group, test::Findings& findings) {
        un::Memory<float> data = group.allocate<float>(5000);
        std::fill(data.begin(), data.end(), 1.0f);
        un::all_reduce(group, data);
        findings.expect(data[4999] == static_cast<float>(group.size()), "sum");
        un::Memory<float> in = group.allocate<float>(100), out = group.allocate<float>(100);
        std::fill(in.begin(), in.end(), 2.0f);
        un::all_reduce(group, in, out);
        findings.expect(out[99] == 2.0f * static_cast<float>(group.size()) && in[0] == 2.0f, "from one to another");
        auto on_device = upload(group, std::vector<float>(300, 1.0f));
        un::all_reduce(group, on_device.span().subspan(100, 100));
        const auto now = download(on_device.span());
        findings.expect(now[99] == 1.0f && now[100] == static_cast<float>(group.size()) && now[200] == 1.0f,
                        "a part of it");
        if (group.rank() != 0) return;
        kept = std::move(data); // they outlive their world
        kept_on_device = std::move(on_device);
    });
    BOOST_TEST(kept[0] == static_cast<float>(test::at_most(2)));
    BOOST_TEST(download(kept_on_device.span())[0] == 1.0f);
    BOOST_CHECK_THROW((void)kept_on_device.span().subspan(200, 101), un::error);
}

// A device does not compute in the mode of the thread that calls it.
BOOST_AUTO_TEST_CASE(threads_of_other_floating_point_modes) {
    const test::Clean clean;
    const int world = test::at_most(3);
    test::on_ranks(world, [&](Group& group, test::Findings& findings) {
        const auto data = upload(group, std::vector<float>(1000, 1.0f));
        std::vector<float> host(1000, 1.0f); // is summed on the device
        const auto before = un::detail::floating_point_mode();
        if (group.rank() == 1) un::detail::set_floating_point_mode(un::detail::FloatingPointMode::rounds_up);
        un::all_reduce(group, data.span());
        un::all_reduce(group, host);
        un::barrier(group);
        un::detail::set_floating_point_mode(before);
        const auto sum = static_cast<float>(world);
        findings.expect(download(data.span()) == std::vector<float>(1000, sum), "another sum");
        findings.expect(host == std::vector<float>(1000, sum), "another sum on the host");
    });
}

BOOST_AUTO_TEST_CASE(what_differs_on_devices_is_named) {
    const test::Clean clean;
    const int world = test::at_most(3);
    if (world < 2) return test::skip("needs 2 ranks, but the devices here can have 1");
    const auto failure = [&](const std::vector<std::string>& words, const auto& body) {
        test::all_fail(world, un::ErrorCode::mismatch, words, body);
    };
    failure({"1000 float32", "1001 float32"}, [](Group& group) {
        const auto data = un::allocate_on_device<float>(group, group.rank() == 1 ? 1001 : 1000);
        un::all_reduce(group, data.span());
    });
    failure({"another schedule"}, [](Group& group) {
        const auto data = un::allocate_on_device<float>(group, 1000);
        if (group.rank() == 1) un::all_reduce(group, data.span(), un::Sum{}, un::RingSchedule{});
        else un::all_reduce(group, data.span());
    });
    failure({"all_reduce(sum)", "all_reduce(max)"}, [](Group& group) { // NCCL itself would not notice
        const auto data = un::allocate_on_device<float>(group, 1000);
        if (group.rank() == 1) un::all_reduce(group, data.span(), un::Max{});
        else un::all_reduce(group, data.span());
    });
    // Each rank chooses where its data are.
    test::on_ranks(world, [&](Group& group, test::Findings& findings) {
        const auto data = upload(group, std::vector<float>(1000, 1.0f));
        std::vector<float> host(1000, 1.0f);
        if (group.rank() == 1) un::all_reduce(group, host);
        else un::all_reduce(group, data.span());
        findings.expect((group.rank() == 1 ? host : download(data.span()))[999] == static_cast<float>(world), "sum");
    });
}

BOOST_AUTO_TEST_SUITE_END()

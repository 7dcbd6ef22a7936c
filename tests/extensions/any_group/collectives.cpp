// Collectives on run-time types have the bits of the typed ones. Operations on bytes do what they
// say.

#include "../../base/collective/findings.hpp"

#include <unisono/any_group.hpp>
#include <unisono/unisono.hpp>

#include <boost/test/unit_test.hpp>

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <vector>

namespace un = unisono;
using test::is_refused;
using test::refusal_of;

namespace {

template <class T>
std::vector<T> gift(int rank, std::size_t count) {
    std::vector<T> data(count);
    for (std::size_t i = 0; i < count; ++i)
        data[i] = static_cast<T>(static_cast<float>((static_cast<std::size_t>(rank) * 5 + i * 3) % 11 + 1) * 0.75f);
    return data;
}

void require(bool good, const std::string& what) {
    if (!good) throw un::error(un::ErrorCode::aborted, what);
}

template <class T>
bool same(const std::vector<T>& a, const std::vector<T>& b) {
    return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

template <class T, class World>
void compare(World& world, std::size_t count) {
    un::AnyGroup any(world.split(0, world.rank()));
    const un::Elements elements = {un::element_type_of<T>, sizeof(T)};
    const auto ranks = static_cast<std::size_t>(world.size());
    const int last = world.size() - 1;
    const std::vector<T> mine = gift<T>(world.rank(), count);
    const std::vector<T> wide = gift<T>(world.rank() + 7, count * ranks);
    std::vector<T> typed(count);
    std::vector<T> untyped(count);

    const auto reduces = [&](un::ReductionKind kind, auto op) {
        un::all_reduce(world, mine, typed, op);
        any.start_all_reduce(elements, mine.data(), untyped.data(), count, un::untyped::reduction(kind, elements.type))
            .wait();
        require(same(typed, untyped), "all_reduce");
        un::reduce_scatter(world, wide, typed, op);
        any.start_reduce_scatter(elements, wide.data(), untyped.data(), count,
                                 un::untyped::reduction(kind, elements.type))
            .wait();
        require(same(typed, untyped), "reduce_scatter");
        un::reduce(world, mine, typed, last, op);
        any.start_reduce(elements, mine.data(), untyped.data(), count, un::untyped::reduction(kind, elements.type),
                         last)
            .wait();
        require(world.rank() != last || same(typed, untyped), "reduce");
    };
    reduces(un::ReductionKind::sum, un::Sum{});
    reduces(un::ReductionKind::product, un::Product{});
    reduces(un::ReductionKind::min, un::Min{});
    reduces(un::ReductionKind::max, un::Max{});

    std::vector<T> all(count * ranks);
    std::vector<T> others(count * ranks);
    un::all_gather(world, mine, all);
    any.start_all_gather(elements, mine.data(), count, others.data()).wait();
    require(same(all, others), "all_gather");
    un::gather(world, mine, all, last);
    any.start_gather(elements, mine.data(), count, others.data(), last).wait();
    require(same(all, others), "gather");
    un::scatter(world, wide, typed, last);
    any.start_scatter(elements, wide.data(), untyped.data(), count, last).wait();
    require(same(typed, untyped), "scatter");
    typed = untyped = mine;
    un::broadcast(world, typed, last);
    any.start_broadcast(elements, untyped.data(), count, last).wait();
    require(same(typed, untyped), "broadcast");

    // Different counts: rank r gives r + 1 elements to every rank.
    std::vector<std::size_t> counts(ranks);
    std::iota(counts.begin(), counts.end(), std::size_t{1});
    const std::size_t own = counts[static_cast<std::size_t>(world.rank())];
    const std::vector<T> few = gift<T>(world.rank(), own);
    std::vector<T> some(ranks * (ranks + 1) / 2);
    std::vector<T> same_some(some.size());
    un::all_gather(world, few, some, counts);
    any.start_all_gather(elements, few.data(), own, same_some.data(), counts).wait();
    require(same(some, same_some), "all_gather with counts");
    const std::vector<std::size_t> sends(ranks, own);
    const std::vector<T> out = gift<T>(world.rank(), own * ranks);
    un::all_to_all(world, out, some, sends, counts);
    any.start_all_to_all(elements, out.data(), same_some.data(), sends, counts).wait();
    require(same(some, same_some), "all_to_all");

    if (world.size() > 1 && world.rank() < 2) {
        const int other = 1 - world.rank();
        un::Operation going = any.start_send(elements, mine.data(), count, other, 3);
        un::Operation coming = any.start_receive(elements, untyped.data(), count, other, 3);
        coming.wait();
        going.wait();
        require(same(untyped, gift<T>(other, count)), "send and receive");
    }
}

void maximum_of_shorts(const std::byte* in, std::byte* sum, std::size_t count, void* calls) {
    if (calls != nullptr) ++*static_cast<int*>(calls);
    for (std::size_t i = 0; i < count; ++i) {
        std::int16_t a = 0;
        std::int16_t b = 0;
        std::memcpy(&a, in + 2 * i, 2);
        std::memcpy(&b, sum + 2 * i, 2);
        if (a > b) std::memcpy(sum + 2 * i, &a, 2);
    }
}

/// A user's operations, with states of any size up to the largest.
template <std::size_t Bytes>
struct LastByte {
    unsigned char state[Bytes] = {};
    std::int32_t operator()(std::int32_t a, std::int32_t b) const { return a + b + state[Bytes - 1]; }
};

/// The state has memory of its own, so that checkers detect a read past its end.
template <std::size_t Bytes, class World>
void with_state(World& world, std::size_t count) {
    un::AnyGroup any(world.split(0, world.rank()));
    auto own = std::make_unique<LastByte<Bytes>>();
    own->state[Bytes - 1] = 3;
    const un::Reduction reduction = un::make_reduction<LastByte<Bytes>, std::int32_t>(*own);
    require(reduction.state_bytes == Bytes, "the state's size");
    std::vector<std::int32_t> data(count, 1);
    un::Operation sum = any.start_all_reduce({un::ElementType::int32, 4}, data.data(), data.data(), count, reduction);
    own->state[Bytes - 1] = 100; // the collective has a copy
    sum.wait();
    const int ranks = world.size();
    require(data == std::vector<std::int32_t>(count, ranks + 3 * (ranks - 1)),
            "state of " + std::to_string(Bytes) + " bytes: " + std::to_string(data[0]));
}

} // namespace

BOOST_AUTO_TEST_SUITE(untyped)

BOOST_AUTO_TEST_CASE(operations_with_states_of_any_size) {
    for (const int ranks : {2, 3}) {
        test::expect_run(ranks, [](auto& world) {
            for (const std::size_t count : {3u, 5000u}) {
                with_state<1>(world, count);
                with_state<24>(world, count);
                with_state<25>(world, count);
                with_state<48>(world, count);
                with_state<64>(world, count);
            }
        });
    }
}

/// Adds `*state`, if there is one, to the sum of the sources.
void add_and_more(const void* state, const std::byte* const* sources, std::size_t source_count,
                  std::byte* const* targets, std::size_t target_count, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
        float sum = state == nullptr ? 0 : *static_cast<const float*>(state);
        for (std::size_t s = 0; s < source_count; ++s) sum += reinterpret_cast<const float*>(sources[s])[i];
        for (std::size_t t = 0; t < target_count; ++t) reinterpret_cast<float*>(targets[t])[i] = sum;
    }
}
BOOST_AUTO_TEST_CASE(a_reduction_without_a_state_does_not_get_the_state_of_the_last_call) {
    test::expect_run(2, [](auto& world) {
        un::AnyGroup any(world.split(0, world.rank()));
        const un::Elements elements{un::ElementType::float32, sizeof(float)};
        const float one = 1;
        float sum = 0, more = 100;
        un::Reduction reduction{.kind = un::ReductionKind::user,
                                .type = un::ElementType::float32,
                                .combine = &add_and_more,
                                .state = &more};
        any.start_all_reduce(elements, &one, &sum, 1, reduction).wait();
        require(sum == 102, "with a state");
        reduction.state = nullptr;
        any.start_all_reduce(elements, &one, &sum, 1, reduction).wait();
        require(sum == 2, "without");
    });
}

BOOST_AUTO_TEST_CASE(as_the_typed_ones) {
    for (const int ranks : {1, 2, 3}) {
        test::expect_run(ranks, [](auto& world) {
            for (const std::size_t count : {0u, 1u, 40u, 3000u}) {
                compare<float>(world, count);
                compare<un::bfloat16>(world, count);
                compare<std::int64_t>(world, count);
                compare<std::uint32_t>(world, count);
                compare<std::size_t>(world, count);
            }
        });
    }
}

BOOST_AUTO_TEST_CASE(operations_on_bytes) {
    test::expect_run(3, [](auto& world) {
        un::AnyGroup any(world.split(0, world.rank()));
        for (const std::size_t count : {1u, 100u, 5000u}) {
            std::vector<std::int16_t> data(count);
            for (std::size_t i = 0; i < count; ++i)
                data[i] = static_cast<std::int16_t>((static_cast<int>(i) * 7 + world.rank() * 13) % 101 - 50);
            int calls = 0;
            const un::untyped::ByteOperation maximum = {&maximum_of_shorts, 2, &calls};
            any.start_all_reduce({un::ElementType::opaque, 2}, data.data(), data.data(), count,
                                 un::untyped::reduction(maximum))
                .wait();
            for (std::size_t i = 0; i < count; ++i) {
                int expected = -100;
                for (int rank = 0; rank < 3; ++rank)
                    expected = std::max(expected, (static_cast<int>(i) * 7 + rank * 13) % 101 - 50);
                require(data[i] == expected, "maximum");
            }
            require(calls > 0 || count < 3, "the context is passed on");
        }
    });
}

BOOST_AUTO_TEST_CASE(operations_on_large_elements) {
    const auto add = [](const std::byte* in, std::byte* sum, std::size_t count, void* bytes) {
        const std::size_t all = count * *static_cast<const std::size_t*>(bytes);
        // Without a call for each byte: there are millions.
        const auto* const from = reinterpret_cast<const unsigned char*>(in);
        auto* const to = reinterpret_cast<unsigned char*>(sum);
        for (std::size_t i = 0; i < all; ++i) to[i] = static_cast<unsigned char>(to[i] + from[i]);
    };
    for (const int ranks : {2, 3}) {
        test::expect_run(ranks, [&](auto& world) {
            un::AnyGroup any(world.split(0, world.rank()));
            for (std::size_t bytes :
                 {std::size_t{4096}, std::size_t{4097}, std::size_t{100'000}, std::size_t{3} << 20}) {
                const un::Elements elements = {un::ElementType::opaque, static_cast<std::uint32_t>(bytes)};
                const un::untyped::ByteOperation operation = {add, elements.bytes, &bytes};
                const auto sums = un::untyped::reduction(operation);
                const auto each = static_cast<std::size_t>(ranks);
                std::vector<unsigned char> data(each * bytes);
                unsigned char* const given = data.data();
                for (std::size_t i = 0; i < each * bytes; ++i)
                    given[i] = static_cast<unsigned char>(i * 7 + static_cast<std::size_t>(world.rank()));
                std::vector<unsigned char> own(bytes);
                any.start_reduce_scatter(elements, data.data(), own.data(), 1, sums).wait();
                any.start_all_reduce(elements, data.data(), data.data(), each, sums).wait();
                const std::size_t others = each * (each - 1) / 2;
                bool right = true;
                const unsigned char* const found = data.data();
                for (std::size_t i = 0; i < each * bytes; ++i)
                    right = right && found[i] == static_cast<unsigned char>(i * 7 * each + others);
                require(right, "all_reduce of large ones");
                const std::size_t begin = static_cast<std::size_t>(world.rank()) * bytes;
                require(std::memcmp(own.data(), data.data() + begin, bytes) == 0, "reduce_scatter of large ones");
            }
        });
    }
}

BOOST_AUTO_TEST_CASE(refusals) {
    BOOST_CHECK(
        is_refused([] { static_cast<void>(un::untyped::reduction(un::ReductionKind::sum, un::ElementType::opaque)); }));
    BOOST_CHECK(is_refused(
        [] { static_cast<void>(un::untyped::reduction(un::ReductionKind::user, un::ElementType::float32)); }));
    for (const std::uint32_t bytes : {0u, (16u << 20) + 1})
        BOOST_CHECK(is_refused([&] {
            static_cast<void>(un::untyped::reduction({&maximum_of_shorts, bytes, nullptr}));
        }));
    un::run<un::InProcess>(2, [&](auto& world) {
        un::AnyGroup any(world.split(0, world.rank()));
        const std::vector<std::size_t> three = {1, 1, 1};
        float number = 0;
        const un::Elements elements = {un::ElementType::float32, 4};
        require(is_refused([&] { any.start_broadcast(elements, &number, 1, 2).wait(); }), "a root that is not there");
        require(is_refused([&] { any.start_all_gather(elements, &number, 1, &number, three).wait(); }), "three counts");
        require(is_refused([&] { any.start_send(elements, &number, 1, world.rank(), 0).wait(); }), "to itself");
        require(is_refused([&] { any.start_send(elements, &number, 1, 1 - world.rank(), -1).wait(); }), "a tag");
        const auto reduced = [&](const un::Reduction& by) {
            any.start_all_reduce(elements, &number, &number, 1, by).wait();
        };
        require(is_refused([&] { reduced(un::untyped::reduction(un::ReductionKind::sum, un::ElementType::float64)); }),
                "a sum of another type");
        const LastByte<1> own;
        un::Reduction typed = un::make_reduction<LastByte<1>, std::int32_t>(own);
        require(is_refused([&] { reduced(typed); }), "an operation of one's own on another type");
        typed.type = un::ElementType::float32;
        typed.state_bytes = 65;
        require(is_refused([&] { reduced(typed); }), "too large a state");
        const un::untyped::ByteOperation shorts = {&maximum_of_shorts, 2, nullptr};
        require(is_refused([&] { reduced(un::untyped::reduction(shorts)); }), "an operation on other sizes");
    });
}

BOOST_AUTO_TEST_CASE(sizes_beyond_memory_and_null_pointers_are_refused) {
    test::expect_run(2, [&](auto& world) {
        un::AnyGroup any(world.split(0, world.rank()));
        const int other = 1 - world.rank();
        const un::Elements elements = {un::ElementType::float32, 4};
        const un::Reduction sum = un::untyped::reduction(un::ReductionKind::sum, un::ElementType::float32);
        std::array<float, 8> in = {}, out = {};
        const std::vector<std::size_t> one = {1, 1};
        // Times 4, or times 4 and 2, it is small again.
        const auto too_large = [&](std::size_t count) {
            const std::vector<std::size_t> counts(2, count);
            const auto refused = [&](auto start) {
                const std::string text = refusal_of([&] { start().wait(); });
                require(text.find("more than memory can hold") != std::string::npos ||
                            text.find("the counts overflow") != std::string::npos,
                        "found '" + text + "'");
            };
            refused([&] { return any.start_all_reduce(elements, in.data(), out.data(), count, sum); });
            refused([&] { return any.start_broadcast(elements, out.data(), count, 0); });
            refused([&] { return any.start_reduce(elements, in.data(), out.data(), count, sum, 0); });
            refused([&] { return any.start_all_gather(elements, in.data(), count, out.data()); });
            refused([&] { return any.start_all_gather(elements, in.data(), count, out.data(), counts); });
            refused([&] { return any.start_reduce_scatter(elements, in.data(), out.data(), count, sum); });
            refused([&] { return any.start_gather(elements, in.data(), count, out.data(), 0); });
            refused([&] { return any.start_scatter(elements, in.data(), out.data(), count, 0); });
            refused([&] { return any.start_all_to_all(elements, in.data(), out.data(), counts, one); });
            refused([&] { return any.start_all_to_all(elements, in.data(), out.data(), one, counts); });
            refused([&] { return any.start_send(elements, in.data(), count, other, 0); });
            refused([&] { return any.start_receive(elements, out.data(), count, other, 0); });
        };
        too_large((std::size_t{1} << 62) + 1);
        too_large(std::size_t{1} << 63);
        const auto null = [&](auto start, const char* words) {
            const std::string text = refusal_of([&] { start().wait(); });
            require(text.find(words) != std::string::npos, "found '" + text + "'");
        };
        const char* const input = "the input is NULL; expected memory of 4 bytes";
        const char* const output = "the output is NULL; expected memory of 8 bytes";
        null([&] { return any.start_all_reduce(elements, nullptr, out.data(), 1, sum); }, input);
        null([&] { return any.start_all_reduce(elements, in.data(), nullptr, 2, sum); }, output);
        null([&] { return any.start_broadcast(elements, nullptr, 2, 1); }, output);
        null([&] { return any.start_all_gather(elements, nullptr, 1, out.data()); }, input);
        null([&] { return any.start_all_gather(elements, in.data(), 1, nullptr); }, output);
        null([&] { return any.start_all_to_all(elements, in.data(), nullptr, one, one); }, output);
        null([&] { return any.start_send(elements, nullptr, 1, other, 0); }, input);
        null([&] { return any.start_receive(elements, nullptr, 2, other, 0); }, output);
        null([&] { return any.start_gather(elements, nullptr, 1, out.data(), 0); }, input);
        any.start_all_reduce(elements, in.data(), out.data(), 1, sum).wait(); // such a call is known afterwards
        null([&] { return any.start_all_reduce(elements, nullptr, out.data(), 1, sum); }, input);
        // Arguments that a rank does not use may be anything. So may those for no elements. The
        // group is unchanged.
        const bool root = world.rank() == 0;
        any.start_gather(elements, in.data(), 1, root ? out.data() : nullptr, 0).wait();
        any.start_reduce(elements, in.data(), root ? out.data() : nullptr, 1, sum, 0).wait();
        any.start_scatter(elements, root ? in.data() : nullptr, out.data(), 1, 0).wait();
        any.start_all_reduce(elements, nullptr, nullptr, 0, sum).wait();
        any.start_all_gather(elements, nullptr, 0, nullptr).wait();
        const std::vector<std::size_t> mine = {0, 1};
        any.start_all_gather(elements, root ? nullptr : in.data(), root ? 0 : 1, out.data(), mine).wait();
    });
}

BOOST_AUTO_TEST_SUITE_END()

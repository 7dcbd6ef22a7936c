// Numbers of every type by every operation, and handles of groups over each transport.

#include "../../base/collective/findings.hpp"
#include "../../support/fails.hpp"

#include <unisono/any.hpp>
#include <unisono/join_any.hpp>
#include <unisono/unisono.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace un = unisono;
using test::refusal_of;
using un::untyped::Number;
using un::untyped::Operator;

namespace {

void require(bool good, const std::string& what) {
    if (!good) throw un::error(un::ErrorCode::aborted, what);
}

template <class T>
T applied(Operator op, T a, T b) {
    if constexpr (std::is_integral_v<T>) {
        const auto x = static_cast<std::uint64_t>(a), y = static_cast<std::uint64_t>(b);
        switch (op) {
        case Operator::sum: return static_cast<T>(x + y);
        case Operator::product: return static_cast<T>(x * y);
        case Operator::bit_and: return static_cast<T>(x & y);
        case Operator::bit_or: return static_cast<T>(x | y);
        case Operator::bit_xor: return static_cast<T>(x ^ y);
        default: break;
        }
    } else {
        if (op == Operator::sum) return a + b;
        if (op == Operator::product) return a * b;
    }
    return op == Operator::min ? std::min(a, b) : std::max(a, b);
}

template <class T>
T number(int rank, std::size_t i) {
    const auto some = static_cast<std::int64_t>((static_cast<std::size_t>(rank) * 37 + i * 11) % 251) - 125;
    if constexpr (std::is_integral_v<T>) { // the first ones overflow
        if (i == 0) return std::numeric_limits<T>::max();
        if (i == 1) return std::numeric_limits<T>::min();
    }
    return static_cast<T>(some);
}

template <class T>
void all_operations(un::AnyGroup& world, Number type) {
    const bool whole = std::is_integral_v<T>;
    for (const Operator op : {Operator::sum, Operator::product, Operator::min, Operator::max, Operator::bit_and,
                              Operator::bit_or, Operator::bit_xor}) {
        if (!whole && op >= Operator::bit_and) continue;
        const un::untyped::Combination with = un::untyped::combination(op, type);
        require(with.elements.bytes == sizeof(T) && un::untyped::elements_of(type).bytes == sizeof(T), "bytes");
        for (const std::size_t count : {3u, 1000u}) {
            std::vector<T> data(count), expected(count), sums(count);
            for (std::size_t i = 0; i < count; ++i) {
                data[i] = number<T>(world.rank(), i);
                expected[i] = number<T>(0, i);
                for (int rank = 1; rank < world.size(); ++rank)
                    expected[i] = applied(op, expected[i], number<T>(rank, i));
            }
            world.start_all_reduce(with.elements, data.data(), sums.data(), count, with.reduction).wait();
            const std::string what = std::string(name_of(op)) + " of " + std::string(name_of(type));
            require(sums == expected, what);
            const int last = world.size() - 1;
            world.start_reduce(with.elements, data.data(), data.data(), count, with.reduction, last).wait();
            require(world.rank() != last || data == expected, "reduce: " + what);
        }
    }
}

void all_types(un::AnyGroup world) {
    all_operations<std::int8_t>(world, Number::int8);
    all_operations<std::int16_t>(world, Number::int16);
    all_operations<std::int32_t>(world, Number::int32);
    all_operations<std::int64_t>(world, Number::int64);
    all_operations<std::uint8_t>(world, Number::uint8);
    all_operations<std::uint16_t>(world, Number::uint16);
    all_operations<std::uint32_t>(world, Number::uint32);
    all_operations<std::uint64_t>(world, Number::uint64);
    all_operations<float>(world, Number::float32);
    all_operations<double>(world, Number::float64);
}

/// `mine` of this rank, and for each operation what two ranks get.
void booleans(un::AnyGroup world) {
    const unsigned char mine[4] = {0, 1, static_cast<unsigned char>(world.rank() == 0), 1};
    const auto gives = [&](Operator op, std::vector<unsigned char> expected) {
        const un::untyped::Combination with = un::untyped::combination(op, Number::boolean);
        std::vector<unsigned char> out(4);
        world.start_all_reduce(with.elements, mine, out.data(), 4, with.reduction).wait();
        require(out == expected, "boolean " + std::string(name_of(op)));
    };
    for (const Operator any : {Operator::sum, Operator::max, Operator::bit_or}) gives(any, {0, 1, 1, 1});
    for (const Operator all : {Operator::product, Operator::min, Operator::bit_and}) gives(all, {0, 1, 0, 1});
    gives(Operator::bit_xor, {0, 0, 1, 0});
}

/// Handles, groups, messages and blocks in flight.
void handles(un::AnyGroup world, std::string_view transport) {
    require(world.transport_name() == transport, "the transport's name");
    const int ranks = world.size(), me = world.rank();
    std::optional<un::AnyGroup> backwards = world.split(0, -me);
    require(backwards->rank() == ranks - 1 - me && backwards->size() == ranks, "split");
    un::AnyGroup copy = *backwards;
    backwards.reset();
    std::int64_t sum = me;
    const un::Elements integers = un::untyped::elements_of(Number::int64);
    const auto add = un::untyped::combination(Operator::sum, Number::int64).reduction;
    copy.start_all_reduce(integers, &sum, &sum, 1, add).wait();
    require(sum == ranks * (ranks - 1) / 2, "a copy keeps the group");
    require(world.split(me == 0 ? un::no_colour : 1, me).size() == (me == 0 ? 0 : ranks - 1), "no colour");

    // Two collectives on blocks with gaps, which end in another order.
    std::vector<std::int64_t> first(3 * static_cast<std::size_t>(ranks), -1), second = first;
    const std::int64_t mine[2] = {me, 10 * me};
    un::BlockOperation late, early;
    {
        std::vector<std::size_t> counts(static_cast<std::size_t>(ranks), 2), places;
        for (int rank = 0; rank < ranks; ++rank) places.push_back(3 * static_cast<std::size_t>(rank));
        late = world.start_all_gather(integers, mine, first.data(), un::Blocks{counts, places});
        early = world.start_all_gather(integers, mine, second.data(), un::Blocks{counts, places});
        counts.assign(counts.size(), 77); // the operations have what they need
        places.assign(places.size(), 77);
    }
    while (!early.poll()) {
    }
    late.wait();
    for (int rank = 0; rank < ranks; ++rank) {
        const auto at = 3 * static_cast<std::size_t>(rank);
        require(first[at] == rank && first[at + 1] == 10 * rank && first[at + 2] == -1, "blocks in flight");
    }
    require(second == first, "the second one");
    if (ranks < 2) return;
    std::int64_t got = -1;
    un::Operation coming = world.start_receive(integers, &got, 1, (me + ranks - 1) % ranks, 5);
    world.start_send(integers, mine, 1, (me + 1) % ranks, 5).wait();
    coming.wait();
    require(got == (me + ranks - 1) % ranks, "a ring of messages");
}

} // namespace

BOOST_AUTO_TEST_SUITE(numbers)

/// The body gets a handle of a group of all ranks.
template <class Body>
auto with_handle(Body body) {
    return [body](auto& world) { body(un::AnyGroup(world.split(0, world.rank()))); };
}

BOOST_AUTO_TEST_CASE(every_type_by_every_operation) {
    BOOST_CHECK_NO_THROW(all_types(un::AnyGroup()));
    for (const int ranks : {2, 3}) BOOST_CHECK_NO_THROW(un::run<un::InProcess>(ranks, with_handle(all_types)));
    BOOST_CHECK_NO_THROW(un::run<un::Tcp>(2, with_handle(all_types)));
    BOOST_CHECK_NO_THROW(un::run<un::InProcess>(2, with_handle(booleans)));
}

BOOST_AUTO_TEST_CASE(handles_over_each_transport) {
    BOOST_CHECK_NO_THROW(handles(un::AnyGroup(), "in_process"));
    const auto on = [](std::string_view name) {
        return with_handle([name](const un::AnyGroup& world) { handles(world, name); });
    };
    for (const int ranks : {2, 4}) {
        BOOST_CHECK_NO_THROW(un::run<un::InProcess>(ranks, on("in_process")));
        BOOST_CHECK_NO_THROW(un::run<un::SharedMemory>(ranks, on("shared_memory")));
        BOOST_CHECK_NO_THROW(un::run<un::Tcp>(ranks, on("tcp")));
        BOOST_CHECK_NO_THROW(un::run<un::Hosts<un::Tcp>>(ranks, on("hosts")));
        BOOST_CHECK_NO_THROW(un::run<un::AnyTransport>("shared_memory", ranks, on("shared_memory")));
    }
}

BOOST_AUTO_TEST_CASE(what_is_no_combination) {
    const auto refused = [](Operator op, Number type) {
        return refusal_of([=] { static_cast<void>(un::untyped::combination(op, type)); });
    };
    for (const Number type : {Number::float32, Number::float64, Number::bfloat16, Number::float16})
        BOOST_TEST(refused(Operator::bit_or, type)
                       .find("found the operation or for " + std::string(name_of(type)) +
                             "; expected an integer type") != std::string::npos);
    BOOST_TEST(refused(static_cast<Operator>(7), Number::int8).find("found 7 as the operation") != std::string::npos);
    BOOST_TEST(refused(Operator::sum, static_cast<Number>(13)).find("found 13 as the type") != std::string::npos);
    for (const un::AnyJoinOptions& wrong : {un::AnyJoinOptions{.transport = "pigeon"}})
        BOOST_TEST(refusal_of([&] {
                       static_cast<void>(un::join_any(wrong));
                   }).find("no transport is called 'pigeon'") != std::string::npos);
    BOOST_TEST(refusal_of([] {
                   static_cast<void>(un::join_any(un::identity_of(0, 2), std::string_view("nowhere")));
               }).find("expected host:port") != std::string::npos);
}

// The element types agree, and yet the ranks mean different operations.
BOOST_AUTO_TEST_CASE(ranks_with_different_operations_are_told) {
    test::fails({"mismatch in all_reduce"}, [] {
        un::run<un::InProcess>(2, with_handle([](un::AnyGroup world) {
                                   const auto with = un::untyped::combination(
                                       world.rank() == 0 ? Operator::bit_and : Operator::bit_or, Number::uint16);
                                   std::uint16_t one = 1;
                                   world.start_all_reduce(with.elements, &one, &one, 1, with.reduction).wait();
                               }));
    });
}

BOOST_AUTO_TEST_SUITE_END()

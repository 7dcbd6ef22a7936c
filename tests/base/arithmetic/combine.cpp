#include "support.hpp"

#include <unisono/arithmetic/operations.hpp>

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

namespace un = unisono;
using namespace arithmetic_test;

namespace {

// The oracle: one element at a time, in plain C++. From the library it uses only the conversions,
// which have tests of their own.

template <class T>
using Wide = std::conditional_t<std::is_same_v<T, un::bfloat16> || std::is_same_v<T, un::float16>, float, T>;

template <class W>
W expected_two(un::ReductionKind kind, W a, W b) {
    if constexpr (std::is_integral_v<W>) {
        const auto x = static_cast<std::uint64_t>(a);
        const auto y = static_cast<std::uint64_t>(b);
        switch (kind) {
        case un::ReductionKind::sum: return static_cast<W>(x + y);
        case un::ReductionKind::product: return static_cast<W>(x * y);
        case un::ReductionKind::min: return a < b ? a : b;
        default: return a > b ? a : b;
        }
    } else {
        const bool nan = std::isnan(a) || std::isnan(b);
        switch (kind) {
        case un::ReductionKind::sum: return a + b;
        case un::ReductionKind::product: return a * b;
        case un::ReductionKind::min:
            if (nan) return std::numeric_limits<W>::quiet_NaN();
            if (a == b) return std::signbit(a) ? a : b;
            return a < b ? a : b;
        default:
            if (nan) return std::numeric_limits<W>::quiet_NaN();
            if (a == b) return std::signbit(a) ? b : a;
            return a > b ? a : b;
        }
    }
}

template <class T>
T expected(un::ReductionKind kind, const std::vector<T>& operands) {
    if (operands.size() == 1) return operands[0];
    auto wide = static_cast<Wide<T>>(operands[0]);
    for (std::size_t s = 1; s < operands.size(); ++s)
        wide = expected_two(kind, wide, static_cast<Wide<T>>(operands[s]));
    if constexpr (std::is_floating_point_v<Wide<T>>)
        if (std::isnan(wide)) return static_cast<T>(std::numeric_limits<Wide<T>>::quiet_NaN());
    return static_cast<T>(wide);
}

/// Sources at odd distances from any boundary, with sentinels on both sides of each.
template <class T>
struct Arrays {
    static constexpr std::size_t margin = 64;
    std::vector<std::vector<std::byte>> memory;
    std::vector<std::byte*> start;

    Arrays(std::size_t arrays, std::size_t count, std::size_t shift) {
        for (std::size_t a = 0; a < arrays; ++a) {
            memory.emplace_back(count * sizeof(T) + 4 * margin, std::byte{0xa5});
            start.push_back(memory.back().data() + margin + (shift == 0 ? 0 : (shift * (a + 1)) % margin));
        }
    }
    T get(std::size_t a, std::size_t i) const {
        T value{};
        std::memcpy(&value, start[a] + i * sizeof(T), sizeof(T));
        return value;
    }
    void set(std::size_t a, std::size_t i, T value) { std::memcpy(start[a] + i * sizeof(T), &value, sizeof(T)); }
    bool margins_are_untouched(std::size_t count) const {
        for (std::size_t a = 0; a < memory.size(); ++a) {
            const std::byte* end = start[a] + count * sizeof(T);
            for (const std::byte* p = memory[a].data(); p != memory[a].data() + memory[a].size(); ++p)
                if ((p < start[a] || p >= end) && *p != std::byte{0xa5}) return false;
        }
        return true;
    }
};

struct Shape {
    std::size_t sources = 0;
    std::size_t targets = 0;
    std::size_t count = 0;
    std::size_t shift = 0; ///< bytes from the boundary; no multiple of the element's size
    bool in_place = false; ///< target t is source (sources - 1 - t), while there is one
};

using Kernel = void (*)(un::InstructionSet set, const std::byte* const* sources, std::size_t source_count,
                        std::byte* const* targets, std::size_t target_count, std::size_t count);

template <class Op, class T>
void run(un::InstructionSet set, const std::byte* const* sources, std::size_t source_count, std::byte* const* targets,
         std::size_t target_count, std::size_t count) {
    un::detail::combine_on<Op, T>(set, Op{}, sources, source_count, targets, target_count, count);
}

/// Returns a message about the first difference, or an empty string.
template <class T>
std::string check(Kernel kernel, un::InstructionSet set, un::ReductionKind kind, const Shape& shape) {
    Arrays<T> arrays(shape.sources + shape.targets, shape.count, shape.shift);
    Values<T> values(shape.sources * 1000 + shape.count);
    std::vector<T> wanted(shape.count);
    std::vector<T> operands(shape.sources);
    for (std::size_t i = 0; i < shape.count; ++i) {
        for (std::size_t s = 0; s < shape.sources; ++s) arrays.set(s, i, operands[s] = values.next());
        wanted[i] = expected(kind, operands);
    }
    std::vector<const std::byte*> sources(arrays.start.begin(),
                                          arrays.start.begin() + static_cast<std::ptrdiff_t>(shape.sources));
    std::vector<std::byte*> targets;
    std::vector<std::size_t> target_array;
    for (std::size_t t = 0; t < shape.targets; ++t) {
        target_array.push_back(shape.in_place && t < shape.sources ? shape.sources - 1 - t : shape.sources + t);
        targets.push_back(arrays.start[target_array.back()]);
    }
    kernel(set, sources.data(), sources.size(), targets.data(), targets.size(), shape.count);
    const auto where = [&] {
        return std::string(name_of(kind)) + " of " + std::string(un::name_of(un::element_type_of<T>)) + ", " +
               std::string(un::name_of(set)) + ", " + std::to_string(shape.sources) + " sources, " +
               std::to_string(shape.targets) + " targets, count " + std::to_string(shape.count) + ", shift " +
               std::to_string(shape.shift) + (shape.in_place ? ", in place" : "");
    };
    for (std::size_t t = 0; t < shape.targets; ++t)
        for (std::size_t i = 0; i < shape.count; ++i)
            if (!same_bits(arrays.get(target_array[t], i), wanted[i]))
                return where() + ": target " + std::to_string(t) + " differs at " + std::to_string(i);
    if (!arrays.margins_are_untouched(shape.count)) return where() + ": wrote outside";
    return {};
}

template <class T>
void check_shapes(Kernel kernel, un::ReductionKind kind) {
    constexpr std::size_t vector = 64 / sizeof(T);       // elements of the widest vector
    constexpr std::size_t block = 512 / sizeof(Wide<T>); // of the kernel's blocks
    const std::size_t counts[] = {
        0, 1, 2, 3, 7, vector - 1, vector, vector + 1, 4 * vector, block - 1, block, block + 1, 3 * block + vector + 3};
    for (const un::InstructionSet set : instruction_sets())
        for (std::size_t sources = 1; sources <= 9; ++sources)
            for (std::size_t targets = 1; targets <= 4; ++targets)
                for (const std::size_t count : counts)
                    for (const bool in_place : {false, true}) {
                        const std::size_t shift = (sources + targets + count) % 3 == 0 ? 0 : 1 + 2 * (count % 5);
                        const std::string fault =
                            check<T>(kernel, set, kind, {sources, targets, count, shift, in_place});
                        BOOST_REQUIRE_MESSAGE(fault.empty(), fault);
                    }
}

template <class T>
void check_operations() {
    check_shapes<T>(&run<un::Sum, T>, un::ReductionKind::sum);
    check_shapes<T>(&run<un::Product, T>, un::ReductionKind::product);
    check_shapes<T>(&run<un::Min, T>, un::ReductionKind::min);
    check_shapes<T>(&run<un::Max, T>, un::ReductionKind::max);
}

/// Calls the kernel as an executor does.
template <class T, class Op>
std::vector<T> reduce(const Op& op, const std::vector<std::vector<T>>& inputs) {
    const un::Reduction reduction = un::make_reduction<Op, T>(op);
    std::vector<const std::byte*> sources;
    for (const auto& input : inputs) sources.push_back(reinterpret_cast<const std::byte*>(input.data()));
    std::vector<T> output(inputs.front().size(), inputs.front().front());
    std::byte* target = reinterpret_cast<std::byte*>(output.data());
    reduction.combine(reduction.state, sources.data(), sources.size(), &target, 1, output.size());
    return output;
}

} // namespace

BOOST_AUTO_TEST_SUITE(combine)

BOOST_AUTO_TEST_CASE(float32) { check_operations<float>(); }
BOOST_AUTO_TEST_CASE(float64) { check_operations<double>(); }
BOOST_AUTO_TEST_CASE(bfloat16) { check_operations<un::bfloat16>(); }
BOOST_AUTO_TEST_CASE(float16) { check_operations<un::float16>(); }
BOOST_AUTO_TEST_CASE(int32) { check_operations<std::int32_t>(); }
BOOST_AUTO_TEST_CASE(int64) { check_operations<std::int64_t>(); }
BOOST_AUTO_TEST_CASE(uint32) { check_operations<std::uint32_t>(); }
BOOST_AUTO_TEST_CASE(uint64) { check_operations<std::uint64_t>(); }
BOOST_AUTO_TEST_CASE(uint8) { check_operations<std::uint8_t>(); }

BOOST_AUTO_TEST_CASE(many_elements_at_every_offset) {
    for (const un::InstructionSet set : instruction_sets())
        for (std::size_t shift = 0; shift < 64; shift += 3)
            for (const std::size_t sources : {2u, 5u}) {
                const std::string fault = check<float>(&run<un::Sum, float>, set, un::ReductionKind::sum,
                                                       {sources, 2, 5000 + shift, shift, shift % 2 == 0});
                BOOST_REQUIRE_MESSAGE(fault.empty(), fault);
            }
}

BOOST_AUTO_TEST_CASE(an_element_does_not_depend_on_its_position) {
    // A slice has the same bits alone and as a part of the whole. This makes slices, buckets and
    // schedules interchangeable.
    constexpr std::size_t count = 1003;
    Values<float> values(7);
    std::vector<std::vector<float>> inputs(3, std::vector<float>(count));
    for (auto& input : inputs)
        for (float& x : input) x = values.next();
    const std::vector<float> whole = reduce(un::Sum{}, inputs);
    for (std::size_t begin = 0; begin < count; begin += 37) {
        std::vector<std::vector<float>> slice;
        for (const auto& input : inputs)
            slice.emplace_back(input.begin() + static_cast<std::ptrdiff_t>(begin), input.end());
        const std::vector<float> part = reduce(un::Sum{}, slice);
        for (std::size_t i = 0; i < part.size(); ++i) BOOST_REQUIRE(same_bits(part[i], whole[begin + i]));
    }
}

BOOST_AUTO_TEST_CASE(the_order_is_a_left_fold) {
    const std::vector<float> sum = reduce<float>(un::Sum{}, {{1e8f}, {1.0f}, {-1e8f}, {1.0f}});
    BOOST_TEST(sum[0] == 1.0f); // ((1e8 + 1) - 1e8) + 1, where 1e8 + 1 is 1e8
}

BOOST_AUTO_TEST_CASE(integers_wrap_around) {
    constexpr auto greatest32 = std::numeric_limits<std::int32_t>::max();
    constexpr auto least32 = std::numeric_limits<std::int32_t>::min();
    constexpr auto greatest64 = std::numeric_limits<std::int64_t>::max();
    BOOST_TEST(reduce<std::int32_t>(un::Sum{}, {{greatest32}, {1}})[0] == least32);
    BOOST_TEST(reduce<std::int32_t>(un::Product{}, {{greatest32}, {greatest32}})[0] == 1);
    BOOST_TEST(reduce<std::int64_t>(un::Sum{}, {{greatest64}, {1}})[0] == std::numeric_limits<std::int64_t>::min());
    BOOST_TEST(reduce<std::int64_t>(un::Product{}, {{greatest64}, {2}})[0] == -2);
    BOOST_TEST(reduce<std::uint32_t>(un::Sum{}, {{0xffffffffu}, {3}})[0] == 2u);
    BOOST_TEST(reduce<std::uint64_t>(un::Product{}, {{~std::uint64_t{0}}, {2}})[0] == ~std::uint64_t{1});
    // Above the greatest signed number.
    BOOST_TEST(reduce<std::uint32_t>(un::Max{}, {{0x80000000u}, {1}})[0] == 0x80000000u);
    BOOST_TEST(reduce<std::uint32_t>(un::Min{}, {{0x80000000u}, {1}})[0] == 1u);
    BOOST_TEST(reduce<std::size_t>(un::Max{}, {{std::size_t{1} << 63}, {1}})[0] == std::size_t{1} << 63);
    BOOST_TEST(reduce<std::size_t>(un::Min{}, {{std::size_t{1} << 63}, {1}})[0] == 1u);
    BOOST_TEST(int{reduce<std::uint8_t>(un::Sum{}, {{200}, {100}})[0]} == 44);
    BOOST_TEST(int{reduce<std::uint8_t>(un::Product{}, {{200}, {3}})[0]} == 88);
}

BOOST_AUTO_TEST_CASE(sixteen_bits_are_rounded_once) {
    // In bfloat16, 256 + 1 rounds to 256. In float, eight ones are added.
    std::vector<std::vector<un::bfloat16>> inputs(9, {un::bfloat16(1.0f)});
    inputs[0][0] = un::bfloat16(256.0f);
    BOOST_TEST(float(reduce<un::bfloat16>(un::Sum{}, inputs)[0]) == 264.0f);
    // 65504 + 65504 overflows float16, and does not overflow the accumulator.
    BOOST_TEST(float(reduce<un::float16>(
                   un::Sum{}, {{un::float16(65504.0f)}, {un::float16(65504.0f)}, {un::float16(-65504.0f)}})[0]) ==
               65504.0f);
}

using FloatingTypes = std::tuple<float, double, un::bfloat16, un::float16>;

BOOST_AUTO_TEST_CASE_TEMPLATE(nan_and_zeros_do_not_depend_on_the_order, T, FloatingTypes) {
    using W = un::accumulator_t<T>;
    const auto t = [](double x) { return static_cast<T>(static_cast<W>(x)); };
    const T nan = static_cast<T>(std::numeric_limits<W>::quiet_NaN());
    T other_nan = nan; // another payload, and negative
    std::array<unsigned char, sizeof(T)> bytes{};
    std::memcpy(bytes.data(), &other_nan, sizeof(T));
    bytes[0] = 0x15;
    bytes[sizeof(T) - 1] |= 0x80;
    std::memcpy(&other_nan, bytes.data(), sizeof(T));
    const T infinity = static_cast<T>(std::numeric_limits<W>::infinity());
    const T numbers[] = {nan,    other_nan, t(0.0),   t(-0.0),
                         t(1.0), t(-1.0),   infinity, t(-std::numeric_limits<double>::infinity())};
    for (const T& a : numbers)
        for (const T& b : numbers) {
            const T smaller = reduce<T>(un::Min{}, {{a}, {b}})[0];
            const T larger = reduce<T>(un::Max{}, {{a}, {b}})[0];
            const T sum = reduce<T>(un::Sum{}, {{a}, {b}})[0];
            BOOST_TEST(same_bits(smaller, reduce<T>(un::Min{}, {{b}, {a}})[0]));
            BOOST_TEST(same_bits(larger, reduce<T>(un::Max{}, {{b}, {a}})[0]));
            BOOST_TEST(same_bits(sum, reduce<T>(un::Sum{}, {{b}, {a}})[0]));
            const bool has_nan = std::isnan(static_cast<W>(a)) || std::isnan(static_cast<W>(b));
            if (has_nan) BOOST_TEST((same_bits(smaller, nan) && same_bits(larger, nan) && same_bits(sum, nan)));
        }
    BOOST_TEST(same_bits(reduce<T>(un::Min{}, {{t(0.0)}, {t(-0.0)}})[0], t(-0.0)));
    BOOST_TEST(same_bits(reduce<T>(un::Max{}, {{t(-0.0)}, {t(0.0)}})[0], t(0.0)));
    BOOST_TEST(same_bits(reduce<T>(un::Sum{}, {{infinity}, {t(-std::numeric_limits<double>::infinity())}})[0], nan));
}

BOOST_AUTO_TEST_CASE(one_source_is_copied_as_it_is) {
    const std::uint32_t signalling = 0x7f800001u;
    const std::vector<float> copied = reduce<float>(un::Min{}, {{std::bit_cast<float>(signalling), -0.0f, 3.0f}});
    BOOST_TEST(std::bit_cast<std::uint32_t>(copied[0]) == signalling);
    BOOST_TEST(std::signbit(copied[1]));
}

BOOST_AUTO_TEST_CASE(weighted_mean_adds_and_checks_its_weight) {
    BOOST_TEST(reduce<float>(un::WeightedMean{.weight = 3.0}, {{1.0f}, {2.0f}})[0] == 3.0f);
    BOOST_TEST((un::make_reduction<un::WeightedMean, double>({}).kind == un::ReductionKind::weighted_mean));
    const auto refused = [](const un::error& e) {
        return e.code() == un::ErrorCode::bad_input &&
               std::string(e.what()).find("WeightedMean::weight") != std::string::npos &&
               std::string(e.what()).find("0.000") == std::string::npos; // such as 1e-300
    };
    for (const double weight : {-1.0, std::nan(""), std::numeric_limits<double>::infinity(), 1e-300, 1e300}) {
        const un::WeightedMean mean{.weight = weight};
        BOOST_CHECK_EXCEPTION((un::make_reduction<un::WeightedMean, float>(mean)), un::error, refused);
        BOOST_CHECK_EXCEPTION((un::make_reduction<un::WeightedMean, double>(mean)), un::error, refused);
    }
    // Weights that the element's type cannot hold, with headroom for the sum over any number of
    // ranks.
    const auto taken = [](auto zero, double weight) {
        try {
            un::WeightedMean{.weight = weight}.check(un::element_type_of<decltype(zero)>);
        } catch (const un::error&) {
            return false;
        }
        return true;
    };
    BOOST_TEST((taken(0.0f, 0.0) && taken(0.0f, 0x1p-64) && taken(0.0f, 0x1p64)));
    BOOST_TEST((!taken(0.0f, 1e-50) && !taken(0.0f, 1e39) && !taken(un::bfloat16(), 1e39)));
    BOOST_TEST((taken(0.0, 1e-50) && taken(0.0, 1e39)));
    BOOST_TEST((taken(un::float16(), 16384) && !taken(un::float16(), 1e5) && !taken(un::float16(), 1e-6)));
}

BOOST_AUTO_TEST_SUITE_END()

namespace {

struct Gcd {
    std::int32_t operator()(std::int32_t a, std::int32_t b) const {
        while (b != 0) {
            const std::int32_t rest = a % b;
            a = b;
            b = rest;
        }
        return a;
    }
};

struct Clamped {
    float limit = 0;
    float operator()(float a, float b) const { return a + b < limit ? a + b : limit; }
};

/// An opaque element without a default constructor: a complex number with a count.
struct Moment {
    Moment() = delete;
    Moment(double value, double square, std::int64_t number) : sum(value), squares(square), count(number) {}
    double sum;
    double squares;
    std::int64_t count;
};

struct JoinMoments {
    Moment operator()(Moment a, Moment b) const { return {a.sum + b.sum, a.squares + b.squares, a.count + b.count}; }
};

struct Huge {
    std::array<std::int32_t, 700> values{}; // larger than a block of the kernel
    friend bool operator==(const Huge&, const Huge&) = default;
};

struct AddHuge {
    Huge operator()(Huge a, const Huge& b) const {
        for (std::size_t i = 0; i < a.values.size(); ++i) a.values[i] += b.values[i];
        return a;
    }
};

struct TooLarge {
    std::array<char, 65> state{};
    float operator()(float a, float) const { return a; }
};

struct WrongResult {
    double operator()(float a, float b) const { return a + b; }
};

struct NotCopyable {
    NotCopyable() = default;
    NotCopyable(const NotCopyable&) {}
    float operator()(float a, float b) const { return a + b; }
};

} // namespace

BOOST_AUTO_TEST_SUITE(users_operation)

BOOST_AUTO_TEST_CASE(of_an_integer) {
    const Gcd gcd;
    for (std::size_t count : {1u, 2u, 17u, 300u}) {
        std::vector<std::vector<std::int32_t>> inputs(4, std::vector<std::int32_t>(count));
        for (std::size_t s = 0; s < 4; ++s)
            for (std::size_t i = 0; i < count; ++i)
                inputs[s][i] = static_cast<std::int32_t>((i + 1) * (s + 2) * 6); // their gcd is 1
        const std::vector<std::int32_t> found = reduce(gcd, inputs);
        for (std::size_t i = 0; i < count; ++i) BOOST_REQUIRE_EQUAL(found[i], static_cast<std::int32_t>((i + 1) * 6));
    }
}

BOOST_AUTO_TEST_CASE(with_a_state) {
    const Clamped clamped{.limit = 10.0f};
    const un::Reduction reduction = un::make_reduction<Clamped, float>(clamped);
    BOOST_TEST((reduction.kind == un::ReductionKind::user));
    BOOST_TEST((reduction.type == un::ElementType::float32));
    BOOST_TEST(reduction.state == static_cast<const void*>(&clamped));
    BOOST_TEST(reduce<float>(clamped, {{4.0f, 1.0f}, {4.0f, 1.0f}, {4.0f, 1.0f}}) == (std::vector<float>{10.0f, 3.0f}),
               boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_lambda) {
    const auto exclusive_or = [](std::int64_t a, std::int64_t b) { return a ^ b; };
    BOOST_TEST(reduce<std::int64_t>(exclusive_or, {{5}, {6}, {12}})[0] == (5 ^ 6 ^ 12));
}

BOOST_AUTO_TEST_CASE(of_a_type_of_the_users) {
    const JoinMoments join;
    BOOST_TEST((un::make_reduction<JoinMoments, Moment>(join).type == un::ElementType::opaque));
    for (std::size_t sources = 2; sources <= 5; ++sources) {
        std::vector<std::vector<Moment>> inputs;
        for (std::size_t s = 0; s < sources; ++s) {
            std::vector<Moment> input;
            for (int i = 0; i < 50; ++i) input.emplace_back(static_cast<double>(i), 0.5, static_cast<std::int64_t>(s));
            inputs.push_back(input);
        }
        const std::vector<Moment> joined = reduce(join, inputs);
        for (int i = 0; i < 50; ++i) {
            const auto n = static_cast<double>(sources);
            BOOST_REQUIRE_EQUAL(joined[static_cast<std::size_t>(i)].sum, n * i);
            BOOST_REQUIRE_EQUAL(joined[static_cast<std::size_t>(i)].squares, n / 2);
            BOOST_REQUIRE_EQUAL(joined[static_cast<std::size_t>(i)].count,
                                static_cast<std::int64_t>(sources * (sources - 1) / 2));
        }
    }
}

BOOST_AUTO_TEST_CASE(of_a_huge_type) {
    std::vector<std::vector<Huge>> inputs(4, std::vector<Huge>(3));
    for (std::size_t s = 0; s < 4; ++s)
        for (std::size_t i = 0; i < 3; ++i) inputs[s][i].values.fill(static_cast<std::int32_t>(s * 10 + i));
    const AddHuge add;
    const std::vector<Huge> sum = reduce(add, inputs);
    for (std::size_t i = 0; i < 3; ++i) {
        Huge wanted;
        wanted.values.fill(static_cast<std::int32_t>(60 + 4 * i));
        BOOST_TEST((sum[i] == wanted));
    }
}

// What is refused: compiling this file is the test.
static_assert(un::reduction_operation<Gcd, std::int32_t> && un::reduction_operation<Clamped, float>);
static_assert(!un::reduction_operation<TooLarge, float>);
static_assert(!un::reduction_operation<WrongResult, float>);
static_assert(!un::reduction_operation<NotCopyable, float>);
static_assert(!un::reduction_operation<un::Sum, Moment>);
static_assert(!un::reduction_operation<un::Sum, std::uint16_t>);
static_assert(!un::reduction_operation<un::WeightedMean, std::int64_t>);

BOOST_AUTO_TEST_SUITE_END()

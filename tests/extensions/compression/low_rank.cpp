// PowerSgd compared with its formulas in plain loops, Adasum compared with its own, and formats of
// few bits element by element.
#include "../../base/trainer/models.hpp"
#include "../../base/trainer/outcomes.hpp"
#include "support/allocation_counter.hpp"

#include "unisono/extensions/compression/adasum.hpp"
#include "unisono/extensions/compression/fp8.hpp"
#include "unisono/extensions/compression/one_bit.hpp"
#include "unisono/extensions/compression/power_sgd.hpp"
#include "unisono/reducer/scheduled.hpp"
#include "unisono/trainer/trainer.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

namespace un = unisono;
using namespace unisono_test;

using Numbers = std::vector<double>;

double any(int rank, int update, std::size_t i) {
    return std::sin(3.1 * rank + 1.7 * update + 0.37 * static_cast<double>(i * i % 101));
}

/// Two buckets. The second one has a matrix between two vectors.
constexpr std::size_t rows = 12, columns = 20, matrix_at = 7, count = 7 + rows * columns + 5 + 9;
const std::vector<un::Slice> buckets = {{count - 9, 9}, {0, count - 9}};
const std::vector<un::ParameterMatrix> parameters = {
    {{0, 7}, 7}, {{matrix_at, rows* columns}, columns}, {{count - 14, 5}, 5}, {{count - 9, 9}, 3}};

/// The state of every rank after each update, which has the same bits everywhere. Calls
/// `gradient(rank, update, i)`.
template <class T, class Policy, class Gradient>
std::vector<std::vector<T>> exchanged(int ranks, const Policy& policy, int updates, Gradient gradient) {
    const test::Shared<std::array<std::array<std::array<T, count>, 4>, 5>> all;
    check_clean(outcomes(ranks, [&](auto& world) {
        auto wire = un::detail::start_compression<T>(policy, world, buckets, parameters);
        auto reduction = un::RingReducer{}.start(world);
        for (int update = 0; update < updates; ++update) {
            std::vector<T> values(count);
            for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<T>(gradient(world.rank(), update, i));
            for (std::size_t b = 0; b < buckets.size(); ++b) wire.begin(b, values.data() + buckets[b].first, reduction);
            wire.finish();
            auto& mine = all->at(static_cast<std::size_t>(world.rank())).at(static_cast<std::size_t>(update));
            std::copy(values.begin(), values.end(), mine.begin());
        }
    }));
    for (std::size_t rank = 1; rank < static_cast<std::size_t>(ranks); ++rank)
        BOOST_TEST((all->at(rank) == all->at(0)), "rank " << rank << " has other bits than rank 0");
    std::vector<std::vector<T>> found;
    for (int update = 0; update < updates; ++update) {
        const auto& one = all->at(0).at(static_cast<std::size_t>(update));
        found.emplace_back(one.begin(), one.end());
    }
    return found;
}

/// An orthonormal basis of at most `most` vectors for the span of a matrix's columns. The matrix is
/// stored by rows.
std::vector<Numbers> basis_of(const Numbers& matrix, std::size_t n, std::size_t m, std::size_t most) {
    std::vector<Numbers> basis;
    for (std::size_t j = 0; j < m && basis.size() < most; ++j) {
        Numbers column(n);
        double before = 0, after = 0;
        for (std::size_t i = 0; i < n; ++i) before += (column[i] = matrix[i * m + j]) * column[i];
        for (int pass = 0; pass < 2; ++pass)
            for (const Numbers& other : basis) {
                double share = 0;
                for (std::size_t i = 0; i < n; ++i) share += column[i] * other[i];
                for (std::size_t i = 0; i < n; ++i) column[i] -= share * other[i];
            }
        for (const double x : column) after += x * x;
        if (after <= 1e-12 * before) continue;
        for (double& x : column) x /= std::sqrt(after);
        basis.push_back(column);
    }
    return basis;
}
/// The projection of a matrix's columns on the span of a basis.
Numbers projected(const std::vector<Numbers>& basis, const Numbers& matrix, std::size_t n, std::size_t m) {
    Numbers found(n * m);
    for (const Numbers& one : basis)
        for (std::size_t j = 0; j < m; ++j) {
            double share = 0;
            for (std::size_t i = 0; i < n; ++i) share += one[i] * matrix[i * m + j];
            for (std::size_t i = 0; i < n; ++i) found[i * m + j] += share * one[i];
        }
    return found;
}
Numbers transposed(const Numbers& matrix, std::size_t n, std::size_t m) {
    Numbers found(n * m);
    for (std::size_t i = 0; i < n; ++i)
        for (std::size_t j = 0; j < m; ++j) found[j * n + i] = matrix[i * m + j];
    return found;
}
template <class T>
Numbers matrix_of(const std::vector<T>& flat) {
    const auto first = flat.begin() + matrix_at;
    return {first, first + rows * columns};
}
double furthest(const Numbers& a, const Numbers& b) {
    double most = 0;
    for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
    return most;
}

Numbers adasum_of(const Numbers& a, const Numbers& b) {
    double aa = 0, bb = 0, ab = 0;
    for (std::size_t i = 0; i < a.size(); ++i) aa += a[i] * a[i], bb += b[i] * b[i], ab += a[i] * b[i];
    Numbers found(a.size());
    for (std::size_t i = 0; i < a.size(); ++i) found[i] = a[i] * (1 - ab / (2 * aa)) + b[i] * (1 - ab / (2 * bb));
    return found;
}

/// One matrix, and the shapes that its model reports.
template <class Shapes>
struct Shaped : SumOfOutputs<float> {
    Shapes shapes;
    explicit Shaped(Shapes of) : SumOfOutputs<float>(24), shapes(std::move(of)) {}
    const Shapes& parameter_shapes() const { return shapes; }
};

} // namespace

BOOST_AUTO_TEST_SUITE(low_rank)

BOOST_AUTO_TEST_CASE(power_sgd_is_its_formula) {
    // The first Q is arbitrary. The first result shows the span of P, and then everything is
    // determined: P spans the sum of M times the rows of the last result, the result is the
    // projection of that sum on P, and each rank keeps its own remainder.
    for (const int ranks : {1, 2, 3})
        for (const std::size_t rank : {std::size_t{1}, std::size_t{3}}) {
            const auto found = exchanged<double>(ranks, un::PowerSgd{.rank = rank}, 4, any);
            std::vector<Numbers> left(static_cast<std::size_t>(ranks), Numbers(rows * columns));
            std::vector<Numbers> spanned;
            for (int update = 0; update < 4; ++update) {
                Numbers sum(rows * columns);
                for (int r = 0; r < ranks; ++r)
                    for (std::size_t i = 0; i < sum.size(); ++i)
                        sum[i] += left[static_cast<std::size_t>(r)][i] += any(r, update, matrix_at + i);
                const Numbers result = matrix_of(found[static_cast<std::size_t>(update)]);
                if (update > 0) {
                    const Numbers last = matrix_of(found[static_cast<std::size_t>(update - 1)]);
                    const auto q = basis_of(transposed(last, rows, columns), columns, rows, rank);
                    Numbers p(rows * rank);
                    for (std::size_t i = 0; i < rows; ++i)
                        for (std::size_t k = 0; k < rank; ++k)
                            for (std::size_t j = 0; j < columns; ++j) p[i * rank + k] += sum[i * columns + j] * q[k][j];
                    spanned = basis_of(p, rows, rank, rank);
                } else {
                    spanned = basis_of(result, rows, columns, rank);
                }
                BOOST_TEST(spanned.size() == rank);
                BOOST_TEST(furthest(result, projected(spanned, sum, rows, columns)) < 1e-9);
                BOOST_TEST(furthest(result, sum) > 1e-3); // it does leave a remainder
                for (Numbers& own : left) {
                    const Numbers sent = projected(spanned, own, rows, columns);
                    for (std::size_t i = 0; i < own.size(); ++i) own[i] -= sent[i];
                }
            }
        }
}

BOOST_AUTO_TEST_CASE(vectors_and_the_first_updates_travel_as_they_are) {
    const auto found = exchanged<float>(3, un::PowerSgd{.rank = 2, .warm_up = 2}, 3, any);
    for (std::size_t update = 0; update < 3; ++update)
        for (std::size_t i = 0; i < count; ++i) {
            float sum = 0; // three in any order, up to rounding
            for (int rank = 0; rank < 3; ++rank) sum += static_cast<float>(any(rank, static_cast<int>(update), i));
            const bool in_matrix = i >= matrix_at && i < matrix_at + rows * columns;
            if (update < 2 || !in_matrix) BOOST_TEST(std::abs(found[update][i] - sum) < 1e-6f);
        }
    // All have rank 2, so there is no remainder: sums of two products, with the same two columns on
    // all ranks.
    const auto thin = [](int rank, int update, std::size_t i) {
        const auto row = static_cast<double>((i - matrix_at) / columns),
                   column = static_cast<double>((i - matrix_at) % columns);
        return std::sin(row) * std::cos(column + rank + update) + std::cos(2 * row) * std::sin(column * rank + update);
    };
    const auto exact = exchanged<double>(3, un::PowerSgd{.rank = 2}, 2, thin);
    for (std::size_t i = matrix_at; i < matrix_at + rows * columns; ++i)
        BOOST_TEST(std::abs(exact[1][i] - (thin(0, 1, i) + thin(1, 1, i) + thin(2, 1, i))) < 1e-9);
}

BOOST_AUTO_TEST_CASE(a_parameter_without_a_shape_is_folded_near_square) {
    const auto folded = [](std::size_t size, std::size_t wide, std::size_t rank) {
        return un::detail::fold({{0, size}, wide}, rank);
    };
    BOOST_TEST(folded(1000, 0, 2).columns == 31u);
    BOOST_TEST(folded(1000, 0, 2).rows == 33u); // the last one of 8
    BOOST_TEST(folded(1000, 0, 2).in_row(32) == 8u);
    BOOST_TEST(folded(1000, 500, 2).rows == 0u);  // (2 + 500) 2 x 2 > 1000
    BOOST_TEST(folded(1000, 250, 1).rows == 4u);  // (4 + 250) 2 < 1000
    BOOST_TEST(folded(1000, 1000, 1).rows == 0u); // a vector
    BOOST_TEST(folded(1, 0, 1).rows == 0u);
}

BOOST_AUTO_TEST_CASE(shapes_that_do_not_fit_are_refused) {
    using Shapes = std::vector<std::vector<std::size_t>>;
    const auto refusal = [](const Shapes& shapes) {
        return outcomes(1,
                        [&](auto& world) {
                            Shaped<Shapes> model(shapes);
                            un::Trainer trainer{world, model, un::PowerSgd{}};
                        })[0]
            .what;
    };
    BOOST_TEST(refusal({{4, 6}}).empty());
    BOOST_TEST(refusal({{4, 3, 2}}).empty());
    BOOST_TEST(refusal({{24}}).empty());
    BOOST_TEST(refusal({{4, 7}}).find("the shape of parameter 0 does not match its 24 elements") != std::string::npos);
    BOOST_TEST(refusal({{std::size_t{1} << 63, 2}}).find("does not match its 24 elements") != std::string::npos);
    BOOST_TEST(refusal({}).find("the model has 0 parameter_shapes for 1 parameters") != std::string::npos);
    BOOST_TEST(refusal({{4, 6}, {1}}).find("more parameter_shapes than its") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(adasum_is_its_formula) {
    for (const int ranks : {1, 2, 3, 5}) {
        const auto found = exchanged<double>(ranks, un::Adasum{}, 2, any);
        for (const un::ParameterMatrix& one : parameters) {
            std::vector<Numbers> level; // neighbours, then pairs of pairs
            for (int rank = 0; rank < ranks; ++rank) {
                Numbers own;
                for (std::size_t i = one.slice.first; i < one.slice.end(); ++i) own.push_back(any(rank, 1, i));
                level.push_back(own);
            }
            while (level.size() > 1) {
                std::vector<Numbers> next;
                for (std::size_t i = 0; i < level.size(); i += 2)
                    next.push_back(i + 1 < level.size() ? adasum_of(level[i], level[i + 1]) : level[i]);
                level = next;
            }
            for (std::size_t i = 0; i < one.slice.count; ++i)
                BOOST_TEST(std::abs(found[1][one.slice.first + i] - ranks * level[0][i]) < 1e-12);
        }
    }
    // Equal vectors give their mean, orthogonal ones their sum. Zero and a vector give the vector.
    const auto alike =
        exchanged<double>(2, un::Adasum{}, 1, [](int, int, std::size_t i) { return static_cast<double>(i); });
    const auto apart = exchanged<double>(
        2, un::Adasum{}, 1, [](int rank, int, std::size_t i) { return static_cast<int>(i % 2) == rank ? 3.0 : 0.0; });
    const auto lonely =
        exchanged<double>(2, un::Adasum{}, 1, [](int rank, int, std::size_t) { return rank == 1 ? 3.0 : 0.0; });
    for (std::size_t i = 0; i < count; ++i) {
        BOOST_TEST(alike[0][i] / 2 == static_cast<double>(i));
        BOOST_TEST(apart[0][i] / 2 == 3.0);
        BOOST_TEST(lonely[0][i] / 2 == 3.0);
    }
}

BOOST_AUTO_TEST_CASE(numbers_of_8_bits) {
    const auto e4m3 = un::detail::Fp8Digits::of(un::Fp8Format::e4m3),
               e5m2 = un::detail::Fp8Digits::of(un::Fp8Format::e5m2);
    const auto number = [](const auto& format, int code) { return format.number(static_cast<std::byte>(code)); };
    const auto code = [](const auto& format, float x) { // of the nearest number
        std::byte byte{};
        const float rounded = format.round(x, byte);
        BOOST_TEST(rounded == format.number(byte));
        return std::to_integer<int>(byte);
    };
    BOOST_TEST(number(e4m3, 0x7e) == 448.0f);
    BOOST_TEST(number(e4m3, 0x01) == 0x1p-9f);
    BOOST_TEST(number(e4m3, 0x08) == 0x1p-6f);
    BOOST_TEST(number(e4m3, 0x38) == 1.0f);
    BOOST_TEST(number(e5m2, 0x7b) == 57344.0f);
    BOOST_TEST(number(e5m2, 0x01) == 0x1p-16f);
    BOOST_TEST(number(e5m2, 0x3c) == 1.0f);
    for (const auto& format : {e4m3, e5m2})
        for (int each = 0; each <= format.largest;
             ++each) { // a number of the format stays, any other becomes the nearest one
            const float own = number(format, each);
            BOOST_TEST(code(format, own) == each);
            BOOST_TEST(number(format, code(format, -own)) == -own);
            if (each == format.largest) break;
            const float next = number(format, each + 1), middle = own / 2 + next / 2;
            BOOST_TEST(own < next);
            BOOST_TEST(code(format, middle * (1 - 0x1p-20f)) == each);
            BOOST_TEST(code(format, middle * (1 + 0x1p-20f)) == each + 1);
        }
    BOOST_TEST(code(e4m3, 1e9f) == 0x7e);
}

BOOST_AUTO_TEST_CASE(blocks_are_their_formulas) {
    // On one rank, values are rounded to the format twice. The second rounding is exact for Fp8Wire
    // and OneBit.
    const auto found = exchanged<float>(1, un::Fp8Wire{.block = 16, .error_feedback = false}, 1, any);
    const auto signs = exchanged<float>(1, un::OneBit{.block = 16}, 1, any);
    for (const un::Slice& bucket : buckets)
        for (std::size_t at = bucket.first; at < bucket.end(); at += 16) {
            const std::size_t end = std::min(at + 16, bucket.end());
            double most = 0, sums[2] = {}, of[2] = {};
            for (std::size_t i = at; i < end; ++i) {
                const double x = static_cast<float>(any(0, 0, i));
                most = std::max(most, std::abs(x));
                sums[x < 0] += x;
                of[x < 0] += 1;
            }
            for (std::size_t i = at; i < end; ++i) {
                const double x = static_cast<float>(any(0, 0, i));
                BOOST_TEST(std::abs(static_cast<double>(found[0][i]) - x) <=
                           std::abs(x) / 16 + most / 448 * 0x1p-10 + 1e-6);
                BOOST_TEST(std::abs(static_cast<double>(signs[0][i]) - sums[x < 0] / of[x < 0]) < 1e-6);
            }
        }
}

BOOST_AUTO_TEST_CASE(tiny_blocks_wait) { // their scales would overflow
    check_clean(outcomes(2, [](auto& world) {
        const std::vector<un::Slice> all = {{0, 3}};
        auto wire = un::Fp8Wire{}.start<float>(world, all);
        auto reduction = un::NativeReducer{}.start(world);
        std::vector<float> values = {1e-39f, -1e-38f, 0};
        wire.begin(0, values.data(), reduction);
        wire.finish();
        if (values != std::vector<float>(3)) throw std::runtime_error("not nothing");
    }));
}

BOOST_AUTO_TEST_CASE(an_exchange_allocates_nothing_once_it_has_begun) {
    const auto check = [](const auto& policy) {
        check_clean(outcomes(2, [&](auto& world) {
            auto wire = un::detail::start_compression<float>(policy, world, buckets, parameters);
            auto reduction = un::RingReducer{}.start(world);
            std::vector<float> values(count, 1.0f);
            const auto updates = [&](int many) {
                for (int update = 0; update < many; ++update) {
                    for (std::size_t b = 0; b < buckets.size(); ++b)
                        wire.begin(b, values.data() + buckets[b].first, reduction);
                    wire.finish();
                    // No rank's messages arrive long before they are awaited.
                    un::barrier(world);
                }
            };
            // On a busy machine more messages than before may arrive early and allocate, but
            // not in every round.
            std::size_t least = 1;
            for (int round = 0; round < 20; ++round) {
                const std::size_t before = allocations_of_thread();
                updates(5);
                if (round > 0) least = std::min(least, allocations_of_thread() - before);
            }
            if (least != 0) throw std::runtime_error("each round allocates");
        }));
    };
    check(un::PowerSgd{.rank = 2, .warm_up = 1});
    check(un::Fp8Wire{});
    check(un::OneBit{.warm_up = 1});
    check(un::Adasum{});
}

BOOST_AUTO_TEST_SUITE_END()

// Crosses policies on memory of a device. The table `trainers`, which has all pairs of owners,
// sums, guards, clippings and loss scalings, is compiled. Combinations of the other policies are
// chosen at run time (chosen.hpp): they have all pairs of these policies, and each with each
// Trainer, on 1, 2 and 4 ranks. Each combination trains on devices and on the host, with the same
// bits.
#pragma once

#include "chosen.hpp"
#include "on_device.hpp"
#include "together/matrix/pairs.hpp"

#include "base/trainer/models.hpp"

#include <unisono/extensions/compression/power_sgd.hpp>
#include <unisono/reproducible.hpp>
#include <unisono/trainer/trainer.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

namespace device_matrix {

// --- what is compiled ----------------------------------------------------------------------------

enum Owner : std::size_t { everybody, owned };
enum Sums : std::size_t { plain, reproducible, narrow, cast, exchange, low_rank };
enum Guard : std::size_t { finite, none };
enum Clipping : std::size_t { unclipped, clipped };
enum Scaling : std::size_t { unscaled, scaled };

inline constexpr std::array<std::size_t, 5> trainer_choices = {2, 6, 2, 2, 2};
using TrainerRow = std::array<std::size_t, 5>;
inline constexpr std::array<TrainerRow, 10> trainers = {{
    {everybody, plain, finite, unclipped, scaled},
    {owned, plain, none, clipped, unscaled},
    {everybody, reproducible, none, clipped, scaled},
    {owned, reproducible, finite, unclipped, unscaled},
    {everybody, narrow, finite, clipped, unscaled},
    {owned, narrow, none, unclipped, scaled},
    {everybody, cast, none, unclipped, unscaled},
    {owned, cast, finite, clipped, scaled},
    {everybody, exchange, finite, clipped, scaled},
    {everybody, low_rank, none, clipped, unscaled},
}};
/// An exchange of a compression's own does not support owners (refused.cpp). Each has one Trainer.
constexpr bool apart(std::size_t a, std::size_t x, std::size_t b, std::size_t y) {
    const bool of_its_own = (a == 1 && x >= exchange) || (b == 1 && y >= exchange);
    return of_its_own && !(a == 0 && x == everybody);
}
static_assert(unisono_matrix::missing_pairs(trainer_choices, trainers, apart) == 0,
              "a pair of policies occurs in no Trainer: add a row");

template <std::size_t I, class... All>
using At = std::tuple_element_t<I, std::tuple<All...>>;

template <std::size_t Row>
struct Policies {
    static constexpr TrainerRow row = trainers[Row];
    using Sharding = At<row[0], un::Replicated, ChosenSharding>;
    using Summation = At<row[1], un::PlainSums, un::Reproducible, un::NarrowReproducible, un::PlainSums, un::PlainSums,
                         un::PlainSums>;
    using Compression =
        At<row[1], un::NoCompression, un::NoCompression, un::NoCompression, ChosenCast, ChosenExchange, un::PowerSgd>;
    using Guard = At<row[2], un::FiniteGuard, un::NoGuard>;
    using Clipping = At<row[3], un::NoClipping, ChosenClipping>;
    using Optimizer =
        ChosenOptimizer<std::conditional_t<row[1] == reproducible || row[1] == narrow, FewOptimizers, Optimizers>>;
    using LossScaling = At<row[4], un::NoLossScaling, un::LossScaling>;
    /// The native reducer sums all slices at once.
    using Reducer = std::conditional_t<row[0] == owned && row[1] == narrow, un::NativeReducer, ChosenReducer>;
};

// --- what is chosen ------------------------------------------------------------------------------

enum Family : std::size_t {
    trainer,
    reducer,
    sampler,
    optimizer,
    weighing,
    accumulation,
    rate,
    pieces, ///< of memory: the model's
    ranks,
    clipping,
    wire,
    owner
};
inline constexpr std::size_t families = 12;
using Row = std::array<std::size_t, families>;
inline constexpr std::array<int, 3> worlds = {1, 2, 4};

/// The number of choices that a Trainer leaves for each family.
template <std::size_t R>
constexpr Row choices_of() {
    using P = Policies<R>;
    const bool any_reducer = std::is_same_v<typename P::Reducer, ChosenReducer> && P::row[1] != exchange;
    return {1,
            any_reducer ? ChosenReducer::choices : 1,
            Chosen<Samplers>::choices,
            P::Optimizer::choices,
            Chosen<Weighings>::choices,
            Chosen<Accumulations>::choices,
            Chosen<Rates>::choices,
            2,
            worlds.size(),
            P::row[3] == clipped ? ChosenClipping::choices : 1,
            P::row[1] == cast       ? ChosenCast::choices
            : P::row[1] == exchange ? ChosenExchange::choices
                                    : 1,
            P::row[0] == owned ? ChosenSharding::choices : 1};
}

/// Rows in which each pair of choices occurs. Adds one missing pair after another, each with as
/// many other missing pairs as possible.
inline std::vector<Row> all_pairs(const std::vector<Row>& left) {
    Row most = {};
    most[trainer] = left.size();
    for (const Row& one : left)
        for (std::size_t f = 1; f < families; ++f) most[f] = std::max(most[f], one[f]);
    const auto possible = [&](std::size_t f, std::size_t x, std::size_t of) { return f == trainer || x < left[of][f]; };
    const auto refused = [&](std::size_t a, std::size_t x, std::size_t b, std::size_t y) {
        for (std::size_t of = 0; of < left.size(); ++of)
            if ((a != trainer || x == of) && possible(a, x, of) && possible(b, y, of)) return false;
        return true;
    };
    std::vector<Row> rows;
    const auto has = [&](std::size_t a, std::size_t x, std::size_t b, std::size_t y) {
        for (const Row& row : rows)
            if (row[a] == x && row[b] == y) return true;
        return false;
    };
    for (std::size_t a = 0; a < families; ++a)
        for (std::size_t b = a + 1; b < families; ++b)
            for (std::size_t x = 0; x < most[a]; ++x)
                for (std::size_t y = 0; y < most[b]; ++y) {
                    if (refused(a, x, b, y) || has(a, x, b, y)) continue;
                    Row row = {};
                    std::array<bool, families> chosen = {};
                    row[a] = x, row[b] = y;
                    chosen[a] = chosen[b] = true;
                    // The Trainer comes first, because it determines the other choices.
                    for (std::size_t f = 0; f < families; ++f) {
                        if (chosen[f]) continue;
                        std::size_t best = 0, most_new = 0;
                        bool any = false;
                        for (std::size_t v = 0; v < most[f]; ++v) {
                            const std::size_t of = f == trainer ? v : row[trainer];
                            if (!possible(f, v, of)) continue;
                            if (f == trainer && !(possible(a, x, of) && possible(b, y, of))) continue;
                            std::size_t fresh = 0;
                            for (std::size_t g = 0; g < families; ++g)
                                if (chosen[g]) fresh += f < g ? !has(f, v, g, row[g]) : !has(g, row[g], f, v);
                            if (!any || fresh > most_new) best = v, most_new = fresh;
                            any = true;
                        }
                        row[f] = best;
                        chosen[f] = true;
                    }
                    rows.push_back(row);
                }
    BOOST_TEST(unisono_matrix::missing_pairs(most, rows, refused) == 0u);
    return rows;
}

// --- the task ------------------------------------------------------------------------------------

inline constexpr std::size_t columns = 14;
inline constexpr std::size_t samples = 23;

/// Two matrices and a vector, some tokens per sample, and a loss that it scales on request.
struct Model : unisono_test::LeastSquares<double, un::GradientKind::mean, true> {
    Model() : LeastSquares(columns, 6) {}
    [[nodiscard]] static const std::vector<std::vector<std::size_t>>& parameter_shapes() {
        static const std::vector<std::vector<std::size_t>> shapes = {{2, 3}, {2, 3}, {2}};
        return shapes;
    }
    double operator()(const un::RowBatch<double, double>& batch, un::Pass& pass) {
        for (const double target : batch.labels) pass.count_tokens(1 + std::floor(4 * target));
        const double loss = LeastSquares::operator()(batch, pass);
        for (std::size_t p = spans.size(); p-- > 0;) {
            for (double& g : gradient_spans[p]) g *= pass.loss_scale();
            pass.ready(p);
        }
        return loss;
    }
};

inline std::vector<double> random_values(unsigned seed, std::size_t count) {
    std::vector<double> values(count);
    un::Mt19937 generator(seed);
    un::torch_rand(generator, std::span<double>(values));
    return values;
}

struct Result {
    std::vector<double> weights;
    un::UpdateReport last;
    std::string failed;
};

template <std::size_t R, class World, class M>
Result train(World& world, M& model, const Row& row) {
    static const std::vector<double> inputs = random_values(21, samples * columns),
                                     targets = random_values(22, samples);
    using P = Policies<R>;
    Result found;
    typename P::Reducer reduction;
    typename P::Compression compression;
    typename P::Clipping clips;
    typename P::Sharding slices;
    typename P::LossScaling scales;
    if constexpr (std::is_same_v<typename P::Reducer, ChosenReducer>) reduction.choice = row[reducer];
    if constexpr (requires { compression.choice; }) compression.choice = row[wire];
    if constexpr (requires { clips.choice; }) clips.choice = row[clipping];
    if constexpr (requires { slices.choice; }) slices.choice = row[owner];
    if constexpr (P::row[4] == scaled) scales = {.initial = 64, .growth_interval = 3};
    const un::RowData<double, double> data{inputs, columns, targets};
    const auto run = [&](const auto&... how) {
        un::Trainer trainer{world,
                            model,
                            slices,
                            typename P::Summation{},
                            typename P::Guard{},
                            clips,
                            scales,
                            compression,
                            typename P::Optimizer{{row[optimizer]}},
                            unisono_matrix::OwnUpdate{},
                            Chosen<Samplers>{row[sampler]},
                            Chosen<Weighings>{row[weighing]},
                            Chosen<Accumulations>{row[accumulation]},
                            Chosen<Rates>{row[rate]},
                            un::Buckets{.first_bytes = 1, .bytes = 64},
                            how...};
        trainer.fit(data, {.epochs = 2, .batch_size = 4, .progress = false},
                    [&](const un::UpdateReport& report) { found.last = report; });
        trainer.verify_replicas();
        trainer.visit_parameters({0, columns}, [&](std::size_t, std::span<const double> values) {
            found.weights.insert(found.weights.end(), values.begin(), values.end());
        });
    };
    if constexpr (P::row[1] == exchange) run(); // it has an exchange of its own
    else run(reduction);
    return found;
}

template <std::size_t R, class Transport>
std::vector<Result> trained(const Row& row) {
    const int size = worlds[row[ranks]];
    std::vector<Result> all(static_cast<std::size_t>(size));
    un::run<Transport>(size,
                       [&](auto& world) {
                           Model network;
                           Result& mine = all[static_cast<std::size_t>(world.rank())];
                           if constexpr (un::streaming_transport<Transport>) {
                               // In pieces, or in one.
                               test::OnDevice model(world, network, row[pieces]);
                               mine = train<R>(world, model, row);
                           } else {
                               mine = train<R>(world, network, row);
                           }
                       },
                       {.timeout = std::chrono::seconds(60)});
    return all;
}

inline bool same_bits(double a, double b) { return std::memcmp(&a, &b, sizeof a) == 0; }

/// Whether all sums are made by one of our schedules, so that they have the host's bits on any
/// transport.
template <std::size_t R>
bool sums_by_schedule(const Row& row) {
    constexpr std::size_t native = 0, automatic = 5, servers = 2;
    if constexpr (!std::is_same_v<typename Policies<R>::Reducer, ChosenReducer>) return false;
    return row[reducer] != native && row[reducer] != automatic &&
           !(Policies<R>::row[0] == owned && row[owner] == servers);
}

template <std::size_t R>
void check(const Row& row) {
    constexpr TrainerRow compiled = trainers[R];
    ++unisono_matrix::counts().ran;
    const std::vector<Result> host = trained<R, un::InProcess>(row);
    const std::vector<Result> device = trained<R, test::Transport>(row);
    std::string text;
    for (const std::size_t one : compiled) text += std::to_string(one) + " ";
    text += "/";
    for (const std::size_t one : row) text += " " + std::to_string(one);
    // A norm of plain sums is formed in another order than on the host, and NCCL itself sums more
    // than two ranks in an order of its own. The stand-in sums them in the host's.
    const bool on_grid = compiled[1] == reproducible || compiled[1] == narrow;
    bool exact = on_grid || compiled[3] == unclipped || row[clipping] != 1;
    double tolerance = 1e-11;
#ifdef UNISONO_TEST_ON_GPU
    if (!on_grid && compiled[1] != exchange && worlds[row[ranks]] > 2 && !sums_by_schedule<R>(row)) {
        exact = false;
        if (compiled[1] == cast) tolerance = 0.1; // sums of 8 or 11 bits
    }
#endif
    BOOST_TEST_CONTEXT(text) {
        BOOST_TEST(host[0].last.number > 0u);
        for (std::size_t rank = 0; rank < device.size(); ++rank) {
            const Result& one = device[rank];
            const Result& other = host[rank];
            BOOST_TEST(one.last.number == other.last.number);
            BOOST_TEST(same_bits(one.last.loss_scale, other.last.loss_scale));
            if (exact) BOOST_TEST(same_bits(one.last.loss, other.last.loss));
            if (compiled[1] == reproducible || compiled[1] == narrow)
                BOOST_TEST(same_bits(one.last.gradient_norm, other.last.gradient_norm));
            BOOST_REQUIRE(one.weights.size() == columns && other.weights.size() == columns);
            for (std::size_t i = 0; i < columns; ++i) {
                const double a = one.weights[i], b = other.weights[i];
                BOOST_TEST((exact ? same_bits(a, b) : std::abs(a - b) <= tolerance * std::max(1.0, std::abs(b))),
                           "rank " << rank << ", weight " << i << ": " << a << " on the device, " << b
                                   << " on the host");
            }
        }
    }
}

/// All pairs, for the Trainers of these rows of the table.
template <std::size_t... R>
void check_all() {
    const test::Clean clean;
    constexpr std::array<void (*)(const Row&), sizeof...(R)> by_trainer = {&check<R>...};
    for (const Row& row : all_pairs({choices_of<R>()...})) by_trainer[row[trainer]](row);
}

} // namespace device_matrix

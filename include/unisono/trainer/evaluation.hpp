#pragma once

/// \file
/// Evaluation on all ranks: each sample exactly once, metrics merged, predictions in the data set's
/// order.

#include "unisono/collective/exchange.hpp"
#include "unisono/core/standard.hpp"
#include "unisono/core/text.hpp"
#include "unisono/data/loader.hpp"
#include "unisono/model/model.hpp"
#include "unisono/observe/metric.hpp"
#include "unisono/sampler/replicas.hpp"
#include "unisono/sampler/samplers.hpp"
#include "unisono/trainer/agreement.hpp"
#include "unisono/trainer/metric_parameters.hpp"
#include "unisono/trainer/not_a_model.hpp"

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN

/// Options of `evaluate` and `predict`.
struct EvaluateOptions {
    std::int64_t batch_size = 256; ///< largest batch of a rank, in samples; cut to the size of the data
    int read_ahead = 0;            ///< batches that a thread of each rank reads ahead; 0: no thread
};

namespace detail {

template <mergeable_metric M>
M metric_from_bytes(const M& like, std::span<const std::byte> bytes) {
    M other = like;
    if constexpr (saves_itself<M>) {
        std::vector<double> state(bytes.size() / sizeof(double));
        if (!bytes.empty()) std::memcpy(state.data(), bytes.data(), bytes.size());
        other.load(state);
    } else {
        std::memcpy(static_cast<void*>(&other), bytes.data(), sizeof(M));
    }
    return other;
}

/// Gathers all ranks' bytes in rank order on every rank; `counts` gets each rank's number.
template <class World, class T, class Counts>
std::vector<T> gather_all(World& world, const std::vector<T>& mine, Counts& counts) {
    const std::array<std::uint64_t, 1> own = {mine.size()};
    List<std::uint64_t> sizes(static_cast<std::size_t>(world.size()));
    gather_words(world, own, sizes);
    counts.resize(sizes.size());
    std::size_t total = 0;
    for (std::size_t rank = 0; rank < sizes.size(); ++rank) total += counts[rank] = sizes[rank];
    std::vector<T> all(total);
    if (total != 0) all_gather(world, mine, all, counts);
    return all;
}

} // namespace detail

/// Merges all ranks' metrics in rank order; the result is the same on every rank. Collective.
/// Cost: two all_gathers, of 8 bytes and of the metric's state per rank.
template <class World, mergeable_metric M>
void merge_over_ranks(World& world, M& metric) {
    if (world.size() == 1) return;
    detail::List<std::size_t> counts;
    const std::vector<std::byte> all = detail::gather_all(world, metric_bytes(metric), counts);
    std::span<const std::byte> rest(all.data(), all.size());
    M merged = detail::metric_from_bytes(metric, rest.first(counts[0]));
    for (std::size_t rank = 1; rank < counts.size(); ++rank) {
        rest = rest.subspan(counts[rank - 1]);
        merged.merge(detail::metric_from_bytes(metric, rest.first(counts[rank])));
    }
    metric = std::move(merged);
}

namespace detail {

/// True if feed(fixed..., metrics...) can be called.
template <class Feed, class Fixed, class... Metrics>
inline constexpr bool feeds = false;
template <class Feed, class... Fixed, class... Metrics>
inline constexpr bool feeds<Feed, std::tuple<Fixed...>, Metrics...> = std::invocable<Feed&, Fixed..., Metrics&...>;

/// The arguments before the metrics with which they are fed. Only one form is asked for: a generic
/// callable may accept both, but compile with one.
template <class Model, class Data, class Batch = batch_of<std::remove_reference_t<Data>>>
using FedWith = std::conditional_t<unit_model<Model>, std::tuple<Model&, const Batch&, pass_given_t<Model>&>,
                                   std::tuple<Model&, const Batch&>>;

/// True if `feed` can feed these metrics with the batches of a data set. Otherwise the compiler
/// says why.
template <class Model, class Data, class Feed, class... Metrics>
consteval bool can_feed() {
    if constexpr (!data_set<std::remove_reference_t<Data>>) {
        tell_data<Data>();
        return false;
    } else if constexpr (!feeds<Feed, FedWith<Model, Data>, Metrics...>) {
        tell_feed<Feed>();
        return false;
    } else {
        tell_metrics_by_value<feeds_copies<Feed, FedWith<Model, Data>, Metrics...>()>();
        return true;
    }
}

/// The same for a model's own `evaluate`.
template <class Model, class Data, class... Metrics>
consteval bool can_evaluate() {
    if constexpr (!data_set<std::remove_reference_t<Data>>) {
        tell_data<Data>();
        return false;
    } else {
        using Batch = batch_of<std::remove_reference_t<Data>>;
        using Given = pass_given_t<Model>;
        constexpr bool takes_pass = requires(Model& m, const Batch& batch, Given& pass, Metrics&... metrics) {
            requires unit_model<Model>;
            m.evaluate(batch, pass, metrics...);
        };
        constexpr bool found = takes_pass || requires(Model& m, const Batch& batch, Metrics&... metrics) {
            m.evaluate(batch, metrics...);
        };
        using Fixed = std::conditional_t<takes_pass, std::tuple<const Batch&, Given&>, std::tuple<const Batch&>>;
        if constexpr (found) tell_metrics_by_value<evaluates_copies<Model, Fixed, Metrics...>()>();
        else tell_evaluate<Batch>();
        return found;
    }
}

/// The type of the elements of a model's outputs for a batch, if it has `predict`.
template <class Model, class Batch>
struct PredictedBy {
    static constexpr bool known = false;
};
template <class Model, class Batch>
    requires requires(Model& m, const Batch& batch) {
        std::span(std::declval<const std::remove_cvref_t<decltype(predict_by(m, batch))>&>());
    }
struct PredictedBy<Model, Batch> {
    static constexpr bool known = true;
    using Outputs = std::remove_cvref_t<decltype(predict_by(std::declval<Model&>(), std::declval<const Batch&>()))>;
    using Element = std::remove_const_t<typename decltype(std::span(std::declval<const Outputs&>()))::element_type>;
};
/// True if the model predicts for the batches of a data set. Otherwise the compiler says why.
template <class Model, class Data>
consteval bool can_predict() {
    if constexpr (!data_set<std::remove_reference_t<Data>>) {
        tell_data<Data>();
        return false;
    } else {
        constexpr bool known = PredictedBy<Model, batch_of<std::remove_reference_t<Data>>>::known;
        if constexpr (!known) tell_predict<Data>();
        return known;
    }
}

/// Ranks agree on the data set's size and the options, and buffers become those of rank 0. Then
/// calls visit(batch, samples) for each batch of this rank; visit(batch, samples, pass) for a model
/// in units. Returns how ranks share the data. Collective. `hosting`: of the workers. \throws error
/// bad_input: an empty data set, a bad size of batches, or ranks that differ in them
template <class Training, class Run, class Model, class Hosting, class Data, class Visit>
SamplerShape each_batch(Training& training, Run& run, Model& model, const Hosting& hosting, Data& data,
                        const EvaluateOptions& options, const char* who, const Visit& visit) {
    auto& world = training.world();
    training.synchronise();
    const auto size = static_cast<std::int64_t>(data.size());
    if (size == 0) refuse_input({who, ": the data set is empty (size() is 0)"});
    if (options.batch_size < 1)
        refuse_input({"EvaluateOptions.batch_size is ", options.batch_size, "; expected at least 1"});
    const SamplerShape shape =
        run.evaluation_hosting(hosting, ReplicasOfRanks{})
            .shape(EvaluationSampler{}, size, std::min(options.batch_size, size), world.size(), world.rank());
    agree_on(world, who, std::array<std::string_view, 2>{"data.size()", "EvaluateOptions.batch_size"},
             std::array<std::int64_t, 2>{shape.data_size, shape.batch_size});
    broadcast_buffers(world, model);
    {
        Loader loader(data, EvaluationSampler{}.stream(shape, Epoch{0}),
                      LoaderOptions{.depth = options.read_ahead, .timeout = world.timeout()});
        for (auto* item = loader.next(); item != nullptr; item = loader.next()) {
            if (!item->batch) continue;
            const std::size_t samples = item->entry.samples.size();
            if constexpr (unit_model<Model>)
                training.template forward<unit_pass_t<Model>>([&](auto& pass) { visit(*item->batch, samples, pass); });
            else visit(*item->batch, samples);
        }
    } // No batch is kept while the other ranks still evaluate theirs.
    if constexpr (unit_model<Model>) training.end_forward();
    return shape;
}

/// One rank's outputs, and the number of outputs per sample (0 without samples).
template <class E>
struct Outputs {
    std::vector<E> values = {};
    std::size_t width = 0;

    void add(std::span<const E> found, std::size_t samples) {
        if (found.size() % samples != 0 || (width != 0 && found.size() != width * samples))
            refuse_input({"predict: the model gave ", found.size(), " outputs for ", samples, " samples; expected ",
                          (width != 0 ? concat({width * samples}) : "a multiple of the samples")});
        width = found.size() / samples;
        values.insert(values.end(), found.begin(), found.end());
    }
};

/// Outputs that are contiguous both on their rank and in the order of the data set.
struct OutputRun {
    std::size_t rank;
    std::size_t samples;
};
/// The ranges of all ranks' outputs, in the order of the data set. `hosts`: the rank of each
/// replica.
List<OutputRun> output_runs(const SamplerShape& shape, const List<std::size_t>& hosts);

/// The outputs of all ranks in the order of the data set.
template <class World, class E>
std::vector<E> in_data_order(World& world, Outputs<E> mine, const SamplerShape& shape) {
    if (world.size() == 1) return std::move(mine.values);
    const std::array<std::uint64_t, 2> facts = {mine.width, static_cast<std::uint64_t>(shape.hosted)};
    List<std::uint64_t> of_ranks(2 * static_cast<std::size_t>(world.size()));
    gather_words(world, facts, of_ranks);
    std::size_t each = 0;
    List<std::size_t> hosts;
    for (std::size_t r = 0; r < of_ranks.size() / 2; ++r) {
        const std::size_t width = of_ranks[2 * r];
        if (width != 0 && each != 0 && width != each)
            refuse_input({"predict: the model gave ", each, " outputs for a sample on one rank and ", width,
                          " on rank ", world.world_rank(static_cast<int>(r)),
                          "; expected the same number on all ranks"});
        each = std::max(each, width);
        hosts.resize(hosts.size() + of_ranks[2 * r + 1], r);
    }
    detail::List<std::size_t> counts;
    const std::vector<E> all = gather_all(world, mine.values, counts);
    List<std::size_t> next(counts.size()), ends(counts.size());
    for (std::size_t r = 0; r < counts.size(); ++r) {
        next[r] = r == 0 ? 0 : ends[r - 1];
        ends[r] = next[r] + counts[r];
    }
    std::vector<E> ordered;
    ordered.reserve(all.size());
    for (const OutputRun& run : output_runs(shape, hosts)) {
        const std::size_t count = run.samples * each;
        std::size_t& from = next[run.rank];
        if (from + count > ends[run.rank])
            refuse_input({"predict: the model gave no outputs on rank ", world.world_rank(static_cast<int>(run.rank)),
                          "; expected ", each, " for a sample"});
        ordered.insert(ordered.end(), all.begin() + static_cast<std::ptrdiff_t>(from),
                       all.begin() + static_cast<std::ptrdiff_t>(from + count));
        from += count;
    }
    return ordered;
}

} // namespace detail
UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
UNISONO_NAMESPACE_BEGIN
namespace detail {

[[gnu::cold]] UNISONO_DEFINITION List<OutputRun> output_runs(const SamplerShape& shape,
                                                             const List<std::size_t>& hosts) {
    FixedArray<Owned<SampleStream>> streams(static_cast<std::size_t>(shape.replicas));
    for (std::int64_t r = 0; r < shape.replicas; ++r) {
        SamplerShape other = shape;
        other.replica = r;
        other.hosted = 1;
        streams[static_cast<std::size_t>(r)].take(new SampleStream(EvaluationSampler{}.stream(other, Epoch{0})));
    }
    List<OutputRun> runs;
    for (std::size_t samples = 0; samples < static_cast<std::size_t>(shape.data_size);) {
        const std::size_t before = samples;
        for (std::size_t r = 0; r < streams.size(); ++r) {
            runs.push_back({hosts[r], streams[r]->next().samples.size()});
            samples += runs.back().samples;
        }
        if (samples == before) break;
    }
    return runs;
}

} // namespace detail
UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES

// A model whose layers are on several ranks, crossed with what happens along the data axis. It has
// the serial loop's numbers and the bits of one stage. If each rank has one micro-batch per update,
// it has the bits of one rank.
#include "extensions/parallel/any_schedule.hpp"
#include "matrix.hpp"

#include "unisono/extensions/updates/asynchronous.hpp"
#include "unisono/parallel.hpp"
#include "unisono/trainer/reproducible.hpp"

namespace {

using namespace unisono_matrix;
using unisono_test::AnySchedule;

/// Some of the matrix's weights. Takes the sum so far, except in the first layer, and the remaining
/// inputs. Passes both on.
struct Piece {
    std::size_t first, count;

    [[nodiscard]] std::size_t inputs() const { return columns - first + (first == 0 ? 0 : 1); }
    [[nodiscard]] std::size_t outputs() const { return columns - first - count + 1; }
    [[nodiscard]] std::size_t parameters() const { return count; }
    static void initialise(std::span<double> weights) { std::fill(weights.begin(), weights.end(), 0.0); }
    void forward(un::LayerForward<double>& call) const {
        const std::size_t in = inputs(), out = outputs(), at = in - (columns - first);
        for (std::size_t s = 0; s < call.samples; ++s) {
            const double* const x = call.input.data() + s * in;
            double* const y = call.output.data() + s * out;
            y[0] = first == 0 ? 0 : x[0];
            for (std::size_t i = 0; i < count; ++i) y[0] += call.parameters[i] * x[at + i];
            std::copy(x + at + count, x + in, y + 1);
        }
    }
    void backward(un::LayerBackward<double>& call) const {
        const std::size_t in = inputs(), out = outputs(), at = in - (columns - first);
        for (std::size_t s = 0; s < call.samples; ++s) {
            const double slope = call.output_gradient[s * out];
            for (std::size_t i = 0; i < count; ++i) call.gradient[i] += slope * call.input[s * in + at + i];
            if (call.input_gradient.empty()) continue;
            // The data's own gradient is not requested.
            std::fill_n(call.input_gradient.data() + s * in, in, 0.0);
            call.input_gradient[s * in] = slope;
        }
    }
};
struct SquaredError {
    template <class Batch>
    double operator()(std::span<const double> outputs, const Batch& batch, std::span<double> gradients) const {
        double loss = 0;
        const auto rows = static_cast<double>(outputs.size());
        for (std::size_t i = 0; i < outputs.size(); ++i) {
            const double error = outputs[i] - batch.labels[i];
            gradients[i] = 2 * error / rows;
            loss += error * error / rows;
        }
        return loss;
    }
};
constexpr std::array<Piece, 4> pieces = {{{0, 2}, {2, 1}, {3, 1}, {4, 1}}};
using SplitModel = un::PipelineModel<un::Group<test::Transport>, double, SquaredError, AnySchedule>;

} // namespace

namespace unisono_split { // not anonymous, or clang would call its comparison unneeded

namespace un = unisono;

/// Any reducer without owners, chosen at run time.
struct AnyReducer {
    enum Kind { native, ring, tree, halving_doubling } kind = native;

    static constexpr std::string_view name = "any";
    static constexpr un::Family family = un::Family::reducer;
    static constexpr bool gives_owners = false;
    static constexpr bool reduces_to_owners = true;
    friend bool operator==(const AnyReducer&, const AnyReducer&) = default;
    struct Run {
        Kind kind;
        template <class Do>
        un::Operation with(Do call) const {
            switch (kind) {
            case ring: return call(un::RingSchedule{}, un::RingSchedule{});
            case tree: return call(un::TreeSchedule{}, un::TreeSchedule{});
            case halving_doubling: return call(un::HalvingDoublingSchedule{}, un::TreeSchedule{});
            case native: break;
            }
            return call(un::NativeSchedule{}, un::NativeSchedule{});
        }
        template <class Group, class T>
        un::Operation sum(Group& group, std::span<T> values) const {
            return with([&](auto all, auto) { return un::start_all_reduce(group, values, un::Sum{}, all); });
        }
        template <class Group, class T>
        un::Operation sum_to(Group& group, std::span<T> values, int owner) const {
            return with([&](auto, auto one) {
                return un::start_reduce(group, std::span<const T>(values), values, owner, un::Sum{}, one);
            });
        }
        template <class Group, class T>
        un::Operation publish(Group& group, std::span<T> values, int owner) const {
            return with([&](auto, auto one) { return un::start_broadcast(group, values, owner, one); });
        }
    };
    template <class World>
    [[nodiscard]] Run start(World&) const {
        return {kind};
    }
};

} // namespace unisono_split

namespace {

using unisono_split::AnyReducer;

struct Shape {
    int data, stages;
    AnySchedule schedule = {};
    bool processes = false;
};
struct Found {
    std::array<double, columns> weights;
    std::uint64_t updates;
};

template <class... Policies>
Found trained(const Shape& shape, const Policies&... policies) {
    test::any_on_processes = shape.processes && !test::under_thread_sanitizer;
    const test::Shared<std::array<Found, 2>> found; // of each replica
    const auto all = unisono_test::outcomes(shape.data * shape.stages, [&](auto& world) {
        un::Mesh mesh{world, {{"data", shape.data}, {"pipeline", shape.stages}}};
        un::Layers<double> layers;
        for (const Piece& one : pieces) layers.add(one);
        const auto stages = static_cast<std::size_t>(shape.stages);
        un::LayerPlacement placement(stages * shape.schedule.chunks, 1);
        placement[0] += pieces.size() - placement.size();
        un::PipelineModel model{mesh.axis("pipeline"), std::move(layers), SquaredError{}, shape.schedule,
                                un::PipelineOptions{.micro_batches = 2, .placement = placement}};
        un::RowData<double, double> data{inputs(), columns, targets()};
        un::Trainer trainer{mesh.axis("data"), model, un::DistributedSampler{.seed = 4},
                            un::Buckets{.first_bytes = 1, .bytes = 16}, policies...};
        trainer.fit(data, {.epochs = epochs, .batch_size = batch_size, .progress = false});
        trainer.verify_replicas();
        Found& mine = found->at(static_cast<std::size_t>(mesh.coordinate("data")));
        std::size_t p = 0;
        for (const std::string& name : model.parameter_names()) {
            const auto from = model.parameters()[p++];
            std::copy(from.begin(), from.end(),
                      mine.weights.begin() + static_cast<std::ptrdiff_t>(
                                                 pieces[static_cast<std::size_t>(std::stoi(name.substr(6)))].first));
        }
        if (mesh.coordinate("pipeline") == 0) mine.updates = trainer.updates();
    });
    test::any_on_processes = false;
    for (const auto& outcome : all) BOOST_TEST(!outcome.failed, outcome.what);
    return found->at(0);
}

enum class Bits { of_one_stage, of_one_rank, of_nobody };

template <class Reducer, class Update, class Sharding, class Clipping = un::NoClipping>
void check_split(const Reducer& reducer, const Update& update, const Sharding& sharding,
                 const un::Accumulate& accumulation, Bits bits, const Clipping& clipping = {}) {
    ++counts().ran;
    const un::Sgd sgd{.learning_rate = 0.1, .momentum = 0.9};
    constexpr bool local = !Update::agrees && !un::detail::has_servers<Update>;
    Found one_rank{};
    for (const int data : {1, 2}) {
        // Two replicas, on one rank or two, if all make one update together.
        const int replicas = local ? data : 2;
        const auto with = [&](const Shape& shape) {
            if constexpr (local)
                return trained(shape, reducer, update, sharding, accumulation, sgd, un::BySamples{}, clipping);
            else
                return trained(shape, reducer, update, sharding, accumulation, sgd, un::BySamples{}, clipping,
                               un::Replicas{.count = 2});
        };
        const Found one_stage = with({data, 1});
        if (data == 1) one_rank = one_stage;
        BOOST_TEST(one_stage.updates > 0u);
        const auto expected = serial(replicas, update, un::DistributedSampler{.seed = 4}, accumulation, un::BySamples{},
                                     sgd, un::ConstantRate{}, clipping, one_stage.updates);
        const Shape more =
            data == 1 ? Shape{1, 3, {AnySchedule::gpipe}} : Shape{2, 2, {AnySchedule::interleaved, 2}, true};
        for (const Shape& shape : {Shape{data, 1}, Shape{data, 2}, more}) {
            BOOST_TEST_CONTEXT(data << " x " << shape.stages << " ranks, schedule " << shape.schedule.kind << ", "
                                    << Reducer::name << ", " << Update::name << ", " << Sharding::name << ", "
                                    << accumulation.steps << " steps, " << Clipping::name) {
                const Found found = shape.stages == 1 ? one_stage : with(shape);
                BOOST_TEST(found.updates == one_stage.updates);
                for (std::size_t j = 0; j < columns; ++j)
                    BOOST_TEST(std::abs(found.weights[j] - expected[j]) <= 1e-11 * std::max(1.0, std::abs(expected[j])),
                               "weight " << j << " is " << found.weights[j] << ", expected " << expected[j]);
                if (bits != Bits::of_nobody)
                    BOOST_TEST(found.weights == one_stage.weights, boost::test_tools::per_element());
                if (bits == Bits::of_one_rank)
                    BOOST_TEST(found.weights == one_rank.weights, boost::test_tools::per_element());
            }
        }
    }
}

/// A sum of two numbers does not depend on their order. A sum of more numbers does.
Bits bits_of(const un::Accumulate& accumulation) {
    return accumulation.steps == 1 ? Bits::of_one_rank : Bits::of_one_stage;
}

const std::array<un::Accumulate, 2> every_accumulation = {un::Accumulate{.steps = 1}, un::Accumulate{.steps = 3}};

void check_reducer(const AnyReducer& reducer) {
    for (const un::Accumulate& accumulation : every_accumulation) {
        check_split(reducer, un::Synchronous{}, un::Replicated{}, accumulation, bits_of(accumulation));
        check_split(reducer, un::Synchronous{}, un::StateSharding{}, accumulation, bits_of(accumulation));
        check_split(reducer, un::LocalSteps{.steps = 2}, un::Replicated{}, accumulation, Bits::of_one_stage);
    }
}

template <class Reducer, class Update, class Sharding, class Summation = un::PlainSums>
void count_refused() {
    constexpr std::string_view refusal =
        un::refusal<un::Group<test::Transport>, SplitModel, Reducer, Update, Sharding, Summation>;
    static_assert(!refusal.empty());
    ++counts().refused[std::string(refusal)];
}

} // namespace

BOOST_AUTO_TEST_SUITE(split_models)

BOOST_AUTO_TEST_CASE(native) { check_reducer({AnyReducer::native}); }
BOOST_AUTO_TEST_CASE(ring) { check_reducer({AnyReducer::ring}); }
BOOST_AUTO_TEST_CASE(tree) { check_reducer({AnyReducer::tree}); }
BOOST_AUTO_TEST_CASE(halving_doubling) { check_reducer({AnyReducer::halving_doubling}); }

BOOST_AUTO_TEST_CASE(a_server_and_a_limit) {
    for (const un::Accumulate& accumulation : every_accumulation)
        check_split(un::ParameterServerReducer{.servers = 1}, un::Synchronous{}, un::Replicated{}, accumulation,
                    bits_of(accumulation));
    // The squares of several stages are added in another order than those of one stage.
    check_split(AnyReducer{}, un::Synchronous{}, un::StateSharding{}, un::Accumulate{.steps = 3}, Bits::of_nobody,
                un::ClipByNorm{.max_norm = 0.3});
}

BOOST_AUTO_TEST_CASE(refused) {
    count_refused<un::ParameterServerReducer, un::Synchronous, un::StateSharding>();
    count_refused<un::ParameterServerReducer, un::LocalSteps, un::Replicated>();
    count_refused<AnyReducer, un::LocalSteps, un::StateSharding>();
    count_refused<SumOnlyReducer, un::Synchronous, un::StateSharding>();
    count_refused<un::NativeReducer, un::Synchronous, un::GradientSharding>();
    count_refused<un::NativeReducer, un::Synchronous, un::ParameterSharding>();
    count_refused<un::NativeReducer, un::Asynchronous, un::Replicated>();
    count_refused<un::NativeReducer, un::Synchronous, un::Replicated, un::Reproducible>();
    BOOST_TEST(!counts().refused.empty());
}

BOOST_AUTO_TEST_SUITE_END()

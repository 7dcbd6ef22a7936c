// Layers that are spread over ranks: branches, and linear layers split by rows or columns.
#include "network.hpp"

#include <unisono/extensions/parallel/branches.hpp>
#include <unisono/extensions/parallel/pipeline_options.hpp>
#include <unisono/extensions/parallel/pipeline_schedules.hpp>
#include <unisono/extensions/parallel/tensor.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <stdexcept>

using namespace unisono_test;
using test::Group;

namespace {

/// The user's own product.
struct Multiply {
    void operator()(un::Matrix<const double> a, un::Matrix<const double> b, un::Matrix<double> c, bool add) const {
        for (std::size_t i = 0; i < c.rows; ++i)
            for (std::size_t j = 0; j < c.columns; ++j) {
                double sum = add ? c(i, j) : 0;
                for (std::size_t k = 0; k < a.columns; ++k) sum += a(i, k) * b(k, j);
                c(i, j) = sum;
            }
    }
};
double first_value(std::size_t output, std::size_t input) {
    return std::sin(static_cast<double>(13 * output + 7 * input + 1)) / 3;
}

constexpr std::size_t wide = 7;

/// The results of a model's ranks after a batch: loss, outputs, and the gradient of the first
/// layer, which all ranks have.
struct Found {
    double loss = 0, norm = 0;
    std::size_t parameters = 0;
    std::array<double, 9 * results> outputs = {};
    std::array<double, (width + 1)* hidden> gradient = {};
    double apart(const Found& other) const {
        double far = std::abs(loss - other.loss);
        for (std::size_t i = 0; i < outputs.size(); ++i) far = std::max(far, std::abs(outputs[i] - other.outputs[i]));
        for (std::size_t i = 0; i < gradient.size(); ++i)
            far = std::max(far, std::abs(gradient[i] - other.gradient[i]));
        return far;
    }
};
using AllFound = std::array<Found, 8>;

/// `middle(layers, group)` adds its layers, `hidden` to `wide`, between two layers that all ranks
/// have.
template <class Middle>
void look(int stages, int split, AllFound& all, const Middle& middle) {
    test::run(
        stages * split,
        [&](Group& world) {
            un::Mesh mesh{world, {{"pipeline", stages}, {"tensor", split}}};
            un::Layers<double> layers{Dense<double>{width, hidden, 1}, Squash<double>{hidden}};
            middle(layers, mesh.axis("tensor"));
            layers.add(Squash<double>{wide}).add(Dense<double>{wide, results, 2});
            un::PipelineModel model{mesh.axis("pipeline"), std::move(layers), Distance<double>{results},
                                    un::OneForwardOneBackward{}, un::PipelineOptions{.micro_batches = 2}};
            Group parts = mesh.group({"pipeline", "tensor"});
            model.decide_with(parts);
            const Samples<double> samples(9);
            std::vector<std::size_t> indices(9);
            for (std::size_t i = 0; i < 9; ++i) indices[i] = i;
            const auto batch = samples.data().batch(indices);
            un::Pass pass;
            Found& mine = all[static_cast<std::size_t>(world.rank())];
            mine.loss = model(batch, pass);
            for (const auto one : model.parameters()) mine.parameters += one.size();
            if (mesh.coordinate("pipeline") == 0)
                std::copy(model.gradients()[0].begin(), model.gradients()[0].end(), mine.gradient.begin());
            const auto outputs = model.predict(batch);
            std::copy(outputs.begin(), outputs.end(), mine.outputs.begin());
            std::array<double, 1> one = {1};
            model.sum_over_parts(one);
            mine.norm = one[0];
        },
        test::limit);
}

/// Checks the gradient of every layer on one rank, by differences of the loss.
template <class Middle>
void check_gradient(const Middle& middle) {
    test::run(
        1,
        [&](Group& world) {
            un::Layers<double> layers{Dense<double>{width, hidden, 1}, Squash<double>{hidden}};
            middle(layers, world);
            layers.add(Dense<double>{wide, results, 2});
            un::PipelineModel model{world, std::move(layers), Distance<double>{results}};
            const Samples<double> samples(5);
            const std::vector<std::size_t> indices = {0, 1, 2, 3, 4};
            const auto batch = samples.data().batch(indices);
            un::Pass pass;
            model(batch, pass);
            std::vector<std::vector<double>> gradients;
            for (const auto one : model.gradients()) gradients.emplace_back(one.begin(), one.end());
            for (std::size_t p = 0; p < gradients.size(); ++p)
                for (std::size_t at = p; at < gradients[p].size(); at += 5) {
                    double& value = model.parameters()[p][at];
                    const double before = value;
                    value = before + 1e-5;
                    const double above = model(batch, pass);
                    value = before - 1e-5;
                    const double below = model(batch, pass);
                    value = before;
                    BOOST_TEST(std::abs((above - below) / 2e-5 - gradients[p][at]) < 1e-8, p << ", " << at);
                }
        },
        test::limit);
}

un::Layers<double> branch(std::size_t out, unsigned seed) {
    return un::Layers<double>{Dense<double>{hidden, 5, seed}, Squash<double>{5}, Dense<double>{5, out, seed + 1}};
}
const auto branches = [](un::Layers<double>& layers, Group& group) {
    std::vector<un::Layers<double>> all;
    all.push_back(branch(1, 10));
    all.push_back(branch(3, 12));
    all.push_back(un::Layers<double>{Dense<double>{hidden, 1, 14}});
    all.push_back(branch(2, 16));
    layers.add(un::Branches<Group, double>(group, std::move(all)));
};
const auto linear = [](un::Layers<double>& layers, Group& group) {
    auto first = un::column_linear<double>(group, hidden, 11, Multiply{}, first_value);
    const std::size_t between = first.outputs();
    layers.add(std::move(first)).add(Squash<double>{between});
    layers.add(un::row_linear<double>(group, 11, hidden, Multiply{}, first_value));
    layers.add(un::column_linear<double>(group, hidden, wide, Multiply{}, first_value, {.gather = true}));
};

/// y = factor w x, computed in float.
template <class T>
struct Times {
    std::size_t width;
    float factor = 1;

    [[nodiscard]] std::size_t inputs() const { return width; }
    [[nodiscard]] std::size_t outputs() const { return width; }
    [[nodiscard]] std::size_t parameters() const { return width; }
    void initialise(std::span<T> values) const {
        for (T& one : values) one = T(1.0f);
    }
    void forward(un::LayerForward<T>& call) const {
        for (std::size_t i = 0; i < call.output.size(); ++i)
            call.output[i] = T(factor * float(call.parameters[i % width]) * float(call.input[i]));
    }
    void backward(un::LayerBackward<T>& call) const {
        for (std::size_t i = 0; i < call.output_gradient.size(); ++i) {
            const float slope = factor * float(call.output_gradient[i]);
            T& gradient = call.gradient[i % width];
            gradient = T(float(gradient) + slope * float(call.input[i]));
            if (!call.input_gradient.empty()) call.input_gradient[i] = T(slope * float(call.parameters[i % width]));
        }
    }
};
template <class T>
struct MultiplyInFloat {
    void operator()(un::Matrix<const T> a, un::Matrix<const T> b, un::Matrix<T> c, bool add) const {
        for (std::size_t i = 0; i < c.rows; ++i)
            for (std::size_t j = 0; j < c.columns; ++j) {
                float sum = add ? float(c(i, j)) : 0;
                for (std::size_t k = 0; k < a.columns; ++k) sum += float(a(i, k)) * float(b(k, j));
                c(i, j) = T(sum);
            }
    }
};

/// Loss, gradients and outputs are small integers if `scale` is a power of two, so no type of
/// elements rounds them.
template <class T>
std::vector<float> in_type(Group& world, int split, double scale) {
    Group ranks = world.split(world.rank() / split, world.rank()), alone = world.split(world.rank(), 0);
    const auto first = [](std::size_t output, std::size_t input) { return T((output + input) % 2 == 0 ? 1.0f : 0.0f); };
    un::Layers<T> layers{Times<T>{2}};
    layers.add(un::column_linear<T>(ranks, 2, 4, MultiplyInFloat<T>{}, first));
    layers.add(un::row_linear<T>(ranks, 4, 2, MultiplyInFloat<T>{}, first));
    layers.add(un::column_linear<T>(ranks, 2, 3, MultiplyInFloat<T>{}, first, {.gather = true}));
    std::vector<un::Layers<T>> all;
    for (const float factor : {1.0f, 2.0f, 3.0f}) all.push_back(un::Layers<T>{Times<T>{3, factor}});
    layers.add(un::Branches<Group, T>(ranks, std::move(all)));
    const auto loss = [](std::span<const T> outputs, const auto& micro_batch, std::span<T> gradients) {
        for (std::size_t i = 0; i < gradients.size(); i += 2) // the others stay zero
            gradients[i] = T(1.0f / static_cast<float>(micro_batch.rows()));
        return static_cast<double>(float(outputs[0]));
    };
    un::PipelineModel model{alone, std::move(layers), loss, un::GPipe{}, un::PipelineOptions{.micro_batches = 2}};
    model.decide_with(ranks);
    std::vector<T> values;
    for (const float one : {1.0f, 0.0f, 0.0f, 1.0f, 1.0f, 1.0f, 0.0f, 0.0f}) values.push_back(T(one));
    const un::RowBatch<T> batch{values, std::vector<std::int32_t>(4), 2};
    un::Pass pass(un::PassFacts{.loss_scale = scale});
    std::vector<float> found{static_cast<float>(model(batch, pass))};
    for (const auto one : model.gradients())
        for (const T value : one) found.push_back(float(value));
    for (const T value : model.predict(batch)) found.push_back(float(value));
    return found;
}

template <class Action>
void refuses(const std::string& words, const Action& action) {
    std::string found;
    test::run(1, [&](Group& world) {
        try {
            action(world);
        } catch (const un::error& refused) {
            found = refused.what();
        }
    });
    BOOST_TEST(found.find(words) != std::string::npos, "found \"" << found << "\"");
}

} // namespace

BOOST_AUTO_TEST_SUITE(splits)

BOOST_AUTO_TEST_CASE(branches_have_their_gradients) { check_gradient(branches); }
BOOST_AUTO_TEST_CASE(linear_layers_have_their_gradients) { check_gradient(linear); }

BOOST_AUTO_TEST_CASE(branches_on_ranks) {
    test::Shared<AllFound> one;
    look(1, 1, *one, branches);
    for (const int stages : {1, 2})
        for (const int ranks : {2, 3, 4}) {
            BOOST_TEST_CONTEXT(stages << " stages, " << ranks << " ranks") {
                test::Shared<AllFound> found;
                look(stages, ranks, *found, branches);
                for (int rank = 0; rank < stages * ranks; ++rank) {
                    Found mine = (*found)[static_cast<std::size_t>(rank)];
                    BOOST_TEST(mine.norm == stages * ranks);
                    BOOST_TEST(mine.loss == (*one)[0].loss); // outputs are equal to the bit
                    BOOST_TEST((mine.outputs == (*one)[0].outputs));
                    if (rank >= ranks) mine.gradient = (*one)[0].gradient; // of another stage
                    BOOST_TEST(mine.apart((*one)[0]) < 1e-12);
                    if (ranks == 4) BOOST_TEST((mine.gradient == (*one)[0].gradient));
                }
            }
        }
}

BOOST_AUTO_TEST_CASE(linear_layers_on_ranks) {
    test::Shared<AllFound> one;
    look(1, 1, *one, linear);
    for (const bool processes : {false, true})
        for (const int ranks : {2, 3, 4}) {
            test::any_on_processes = processes && !test::under_thread_sanitizer;
            test::Shared<AllFound> found;
            look(processes ? 2 : 1, ranks, *found, linear);
            test::any_on_processes = false;
            std::size_t parameters = 0;
            for (int rank = 0; rank < ranks; ++rank) {
                const Found& mine = (*found)[static_cast<std::size_t>(rank)];
                BOOST_TEST(mine.apart((*one)[0]) < 1e-12, "rank " << rank << " of " << ranks);
                parameters += mine.parameters;
            }
            // All ranks have the first and last layer, and the bias of the row-split layer.
            const std::size_t shared = (width + 1) * hidden + (wide + 1) * results + hidden;
            if (!processes)
                BOOST_TEST(parameters == (*one)[0].parameters + static_cast<std::size_t>(ranks - 1) * shared);
        }
}

/// A model of uneven splits, and its loss of one batch; `placed`: the layers of each part.
double uneven_loss(Group& world, int stages, int split, std::vector<std::int64_t>& placed) {
    un::Mesh mesh{world, {{"pipeline", stages}, {"tensor", split}}};
    Group& ranks = mesh.axis("tensor");
    un::Layers<double> layers{Dense<double>{width, 5, 1}};
    for (const std::size_t inner : {3U, 5U, 9U, 3U, 7U}) {
        layers.add(un::column_linear<double>(ranks, 5, inner, Multiply{}, first_value));
        layers.add(un::row_linear<double>(ranks, inner, 5, Multiply{}, first_value));
    }
    std::vector<un::Layers<double>> all;
    for (const std::size_t out : {2U, 9U, 1U}) all.push_back(un::Layers<double>{Dense<double>{5, out, 4}});
    layers.add(un::Branches<Group, double>(ranks, std::move(all))).add(Dense<double>{12, results, 2});
    un::PipelineModel model{mesh.axis("pipeline"), std::move(layers), Distance<double>{results},
                            un::OneForwardOneBackward{}, un::PipelineOptions{.micro_batches = 2}};
    Group parts = mesh.group({"pipeline", "tensor"});
    model.decide_with(parts);
    placed.assign(model.placement().begin(), model.placement().end());
    const Samples<double> samples(9);
    const std::vector<std::size_t> indices = {0, 1, 2, 3, 4};
    un::Pass pass;
    return model(samples.data().batch(indices), pass);
}

/// Ranks have different numbers of parameters, and the same layers in the same stage. Otherwise
/// they would wait for each other for ever.
BOOST_AUTO_TEST_CASE(ranks_that_share_layers_place_them_alike) {
    test::Findings findings;
    double expected = 0;
    test::run(1, [&](Group& world) {
        std::vector<std::int64_t> placed;
        expected = uneven_loss(world, 1, 1, placed);
    });
    for (const int stages : {2, 3, 4})
        for (const int split : {2, 3}) {
            if (stages * split > 8) continue;
            test::run(stages * split,
                      [&](Group& world) {
                          std::vector<std::int64_t> placed;
                          const double found = uneven_loss(world, stages, split, placed);
                          findings.expect(std::abs(found - expected) < 1e-9, "the loss is another");
                          std::vector<std::int64_t> all(placed.size() * static_cast<std::size_t>(world.size()));
                          un::all_gather(world, placed, all);
                          for (std::size_t i = 0; i < all.size(); ++i)
                              findings.expect(all[i] == placed[i % placed.size()],
                                              "a rank has placed its layers otherwise");
                      },
                      {.timeout = std::chrono::seconds(20)});
        }
}

/// Differences between ranks that share a layer are refused, and decisions of some of them alone.
BOOST_AUTO_TEST_CASE(ranks_that_share_layers_must_agree) {
    const auto made = [](Group& world, std::uint32_t micro_batches, un::LayerPlacement placement, bool decides) {
        un::Mesh mesh{world, {{"pipeline", 1}, {"tensor", 2}}};
        un::Layers<double> layers{Dense<double>{width, 5, 1}};
        layers.add(
            un::column_linear<double>(mesh.axis("tensor"), 5, results, Multiply{}, first_value, {.gather = true}));
        un::PipelineModel model{mesh.axis("pipeline"), std::move(layers), Distance<double>{results}, un::GPipe{},
                                un::PipelineOptions{.micro_batches = micro_batches, .placement = std::move(placement)}};
        if (decides) model.decide_with(world);
        std::array<double, 1> one = {1};
        model.sum_over_parts(one);
    };
    const auto says = [&](const std::string& words, const auto& on_rank) {
        test::Findings findings;
        try {
            test::run(
                2,
                [&](Group& world) {
                    try {
                        on_rank(world);
                        findings.expect(words.empty(), "nothing was refused");
                    } catch (const un::error& found) {
                        findings.expect(!words.empty() && std::string(found.what()).find(words) != std::string::npos,
                                        found.what());
                    }
                },
                test::limit);
        } catch (const un::error&) { // leaving, too, tells
        }
    };
    says("", [&](Group& world) { made(world, 2, {}, true); });
    says("ranks that share its layers", [&](Group& world) { made(world, world.rank() == 0 ? 2 : 3, {}, true); });
    says("ranks that share its layers",
         [&](Group& world) { made(world, 2, world.rank() == 0 ? un::LayerPlacement{2} : un::LayerPlacement{}, true); });
    says("decide_with", [&](Group& world) { made(world, 2, {}, false); });
    says("layer 1 is spread over ranks", [&](Group& world) { // which one rank alone would wait for
        un::Mesh mesh{world, {{"pipeline", 1}, {"tensor", 2}}};
        un::Layers<double> layers{Dense<double>{width, 5, 1}};
        layers.add(
            un::column_linear<double>(mesh.axis("tensor"), 5, results, Multiply{}, first_value, {.gather = true}));
        un::measure_layers(mesh.axis("pipeline"), layers);
    });
}

/// The replicas of each rank sum gradients in an order of their own, so the biases of a row-split
/// layer may differ by rounding.
BOOST_AUTO_TEST_CASE(all_ranks_have_the_outputs_of_one_bias) {
    test::on_ranks(3, [&](Group& world, test::Findings& findings) {
        auto layer = un::row_linear<double>(world, 6, 2, Multiply{}, first_value);
        std::vector<double> parameters(layer.parameters()), input(layer.inputs(), 1), output(2), all(6);
        layer.initialise(parameters);
        parameters.back() += world.rank() * 0x1p-50;
        un::LayerForward<double> call{1, parameters, input, output};
        layer.forward(call);
        un::all_gather(world, output, all);
        for (std::size_t i = 0; i < 6; ++i) findings.expect(all[i] == all[i % 2], "an output is another");
        double sum = 0;
        for (std::size_t i = 0; i <= 6; ++i) sum += first_value(1, i); // the last is the bias
        findings.expect(std::abs(output[1] - sum) < 1e-14, "the bias is added once");
    });
}

BOOST_AUTO_TEST_CASE(elements_of_16_bits) {
    for (const int ranks : {1, 2}) {
        test::on_ranks(ranks, [&](Group& world, test::Findings& findings) {
            const std::vector<float> floats = in_type<float>(world, ranks, 4);
            findings.expect(*std::max_element(floats.begin(), floats.end()) > 8, "gradients are not zero");
            findings.expect(in_type<un::bfloat16>(world, ranks, 4) == floats, "bfloat16");
            findings.expect(in_type<un::float16>(world, ranks, 4) == floats, "float16");
        });
    }
}

/// Ranks that continue without the one that refuses would wait for it.
BOOST_AUTO_TEST_CASE(what_one_rank_refuses_all_ranks_know) {
    const std::function<void(Group&, bool)> every[] = {
        [](Group& world, bool bad) {
            static_cast<void>(un::column_linear<double>(world, 3, bad ? 1 : 2, Multiply{}, first_value));
        },
        [](Group& world, bool bad) {
            static_cast<void>(un::row_linear<double>(world, bad ? 1 : 2, 3, Multiply{}, first_value));
        },
        [](Group& world, bool bad) {
            std::vector<un::Layers<double>> all(bad ? 1 : 2);
            for (auto& one : all) one.add(Dense<double>{hidden, 2, 1});
            un::Branches<Group, double>(world, std::move(all));
        },
        [](Group& world, bool bad) {
            un::Layers<double> layers{Dense<double>{3, 2, 1, bad ? 0 : -1}};
            un::measure_layers(world, layers);
        }};
    for (const auto& one : every) {
        test::Findings findings;
        try {
            test::run(
                2,
                [&](Group& world) {
                    try {
                        one(world, world.rank() == 0);
                        un::barrier(world);
                        findings.expect(false, "nothing was refused");
                    } catch (const un::error& failed) {
                        findings.expect(failed.code() != un::ErrorCode::timeout, failed.what());
                    } catch (const std::runtime_error&) { // the layer's
                    }
                },
                test::limit);
        } catch (const un::error&) { // leaving also reports it
        }
    }
}

BOOST_AUTO_TEST_CASE(what_cannot_be_split_is_refused) {
    refuses("branch 1 has no layers", [](Group& world) {
        std::vector<un::Layers<double>> all(2);
        all[0] = branch(1, 1);
        un::Branches<Group, double>(world, std::move(all));
    });
    refuses("found 0 branches for 1 ranks", [](Group& world) { un::Branches<Group, double>(world, {}); });
    refuses("found counts for 2 ranks and 2 branches, expected 1 and 1", [](Group& world) {
        std::vector<un::Layers<double>> all;
        all.push_back(branch(1, 1));
        un::Branches<Group, double>(world, std::move(all), {1, 1});
    });
    refuses("found 0 to be split over 1 ranks",
            [](Group& world) { static_cast<void>(un::row_linear<double>(world, 0, 3, Multiply{}, first_value)); });
}

BOOST_AUTO_TEST_SUITE_END()

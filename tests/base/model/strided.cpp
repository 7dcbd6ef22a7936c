// Tensors with strides train like contiguous ones, to the bit. Memory between their elements stays
// unchanged.
#include "../trainer/models.hpp"
#include "../trainer/outcomes.hpp"

#include "unisono/model/strided.hpp"
#include "unisono/trainer/trainer.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

namespace un = unisono;
using namespace unisono_test;
using Tensor = un::StridedTensor<float>;
using Batch = un::RowBatch<float>;

/// A matrix A of 2 x 3 with y = A x, a scalar c and a vector b of 2: loss = mean over rows of |y +
/// c x0 + b|^2 / 2. `strided` decides the memory: rows of 3, or the transpose with a gap of 1 after
/// each column, and the vector in reverse.
struct Network {
    bool strided;
    std::vector<float> matrix, matrix_gradient, vector, vector_gradient;
    float scalar = 0.5f, scalar_gradient = 0;
    int throws_at = -1;
    int calls = 0;
    bool says_ready = false;

    explicit Network(bool with_strides) : strided(with_strides) {
        matrix.assign(9, -7);
        matrix_gradient.assign(9, strided ? 3 : 0); // earlier contents do not count
        vector.assign(2, 0.25f);
        vector_gradient.assign(2, 0);
        for (std::size_t i = 0; i < 2; ++i)
            for (std::size_t j = 0; j < 3; ++j) at(matrix, i, j) = static_cast<float>(i) - 0.5f * static_cast<float>(j);
    }
    [[nodiscard]] std::size_t place(std::size_t i, std::size_t j) const { return strided ? i + 3 * j : 3 * i + j; }
    float& at(std::vector<float>& in, std::size_t i, std::size_t j) const { return in[place(i, j)]; }
    float& back(std::vector<float>& in, std::size_t i) const { return in[strided ? 1 - i : i]; }

    std::vector<Tensor> tensors(float* a, float* c, float* b) const {
        return {{a, {2, 3}, strided ? std::vector<std::ptrdiff_t>{1, 3} : std::vector<std::ptrdiff_t>{3, 1}},
                {c, {}, {}},
                {strided ? b + 1 : b, {2}, {strided ? -1 : 1}}};
    }
    std::vector<Tensor> parameter_tensors() { return tensors(matrix.data(), &scalar, vector.data()); }
    std::vector<Tensor> gradient_tensors() {
        return tensors(matrix_gradient.data(), &scalar_gradient, vector_gradient.data());
    }
    [[nodiscard]] std::vector<std::string> parameter_names() const { return {"matrix", "scalar", "vector"}; }

    double operator()(const Batch& batch, un::Pass& pass) {
        double loss = 0;
        const float share = 1 / static_cast<float>(batch.rows());
        for (std::size_t r = 0; r < batch.rows(); ++r) {
            const auto x = batch.row(r);
            for (std::size_t i = 0; i < 2; ++i) {
                float y = scalar * x[0] + back(vector, i);
                for (std::size_t j = 0; j < 3; ++j) y += at(matrix, i, j) * x[j];
                loss += static_cast<double>(0.5f * y * y * share);
                for (std::size_t j = 0; j < 3; ++j) at(matrix_gradient, i, j) += y * x[j] * share;
                scalar_gradient += y * x[0] * share;
                back(vector_gradient, i) += y * share;
            }
        }
        if (calls++ == throws_at) throw std::runtime_error("not now");
        if (says_ready)
            for (const std::size_t p : {2u, 0u}) pass.ready(p); // and the scalar at the end
        return loss;
    }
    [[nodiscard]] std::vector<float> all() {
        std::vector<float> found;
        for (std::size_t i = 0; i < 2; ++i)
            for (std::size_t j = 0; j < 3; ++j) found.push_back(at(matrix, i, j));
        found.push_back(scalar);
        for (std::size_t i = 0; i < 2; ++i) found.push_back(back(vector, i));
        return found;
    }
};

const std::vector<float> values = [] {
    std::vector<float> made(3 * 10);
    for (std::size_t i = 0; i < made.size(); ++i) made[i] = static_cast<float>(i * 7 % 11) / 8 - 0.5f;
    return made;
}();

std::vector<float> trained(int ranks, bool strided, bool ready = false) {
    const test::Shared<std::array<float, 9>> weights;
    const auto all = outcomes(ranks, [&](auto& world) {
        Network network(strided);
        network.says_ready = ready;
        un::WithStrides model(network);
        un::Trainer trainer{world, model, un::Sgd{.learning_rate = 0.1, .momentum = 0.9},
                            un::Buckets{.first_bytes = 8, .bytes = 8}};
        trainer.fit(un::RowData(std::span<const float>(values), 3), {.epochs = 3, .batch_size = 2, .progress = false});
        if (strided && (network.matrix[2] != -7 || network.matrix_gradient[2] != 3))
            throw std::runtime_error("what lies between the elements was touched");
        const auto found = network.all();
        if (world.rank() == 0) std::copy(found.begin(), found.end(), weights->begin());
    });
    for (const Outcome& one : all)
        if (one.failed) throw std::runtime_error(one.what);
    return {weights->begin(), weights->end()};
}

void refused(Tensor parameter, Tensor gradient, const std::string& words) {
    struct Given {
        Tensor parameter, gradient;
        std::array<Tensor, 1> parameter_tensors() { return {parameter}; }
        std::array<Tensor, 1> gradient_tensors() { return {gradient}; }
        double operator()(int, un::Pass&) { return 0; }
    } given{std::move(parameter), std::move(gradient)};
    BOOST_CHECK_EXCEPTION(un::WithStrides{given}, un::error, [&](const un::error& e) {
        BOOST_TEST(std::string(e.what()).find(words) != std::string::npos, e.what());
        return e.code() == un::ErrorCode::bad_input;
    });
}

} // namespace

BOOST_AUTO_TEST_SUITE(strided_models)

BOOST_AUTO_TEST_CASE(rows_come_in_order) {
    std::vector<float> memory(61);
    std::iota(memory.begin(), memory.end(), 0.0f);
    const Tensor tensor{memory.data() + 40, {2, 3, 4}, {-30, 10, -2}};
    BOOST_TEST(tensor.count() == 24u);
    std::vector<float> found;
    tensor.for_each_row([&](const float* first, std::ptrdiff_t stride, std::size_t n) {
        for (std::size_t i = 0; i < n; ++i) found.push_back(first[static_cast<std::ptrdiff_t>(i) * stride]);
    });
    std::vector<float> expected;
    for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 3; ++j)
            for (int k = 0; k < 4; ++k) expected.push_back(static_cast<float>(40 - 30 * i + 10 * j - 2 * k));
    BOOST_TEST(found == expected, boost::test_tools::per_element());
    std::size_t visits = 0;
    Tensor{nullptr, {3, 0, 2}, {1, 1, 1}}.for_each_row([&](const float*, std::ptrdiff_t, std::size_t) { ++visits; });
    BOOST_TEST(visits == 0u);
    BOOST_TEST((Tensor{nullptr, {1, 5}, {77, 1}}.contiguous()));
    BOOST_TEST((!Tensor{nullptr, {2, 5}, {6, 1}}.contiguous()));
}

BOOST_AUTO_TEST_CASE(trained_as_contiguous_ones_are) {
    for (const int ranks : {1, 3}) {
        const auto expected = trained(ranks, false);
        BOOST_TEST(expected != Network(false).all());
        BOOST_TEST(trained(ranks, true) == expected);
        BOOST_TEST(trained(ranks, true, true) == expected);
    }
}

BOOST_AUTO_TEST_CASE(contiguous_tensors_are_trained_in_place) {
    Network contiguous(false), strided(true);
    un::WithStrides copied(strided);
    un::WithStrides same(contiguous);
    BOOST_TEST(same.parameters()[0].data() == contiguous.matrix.data());
    BOOST_TEST(same.gradients()[1].data() == &contiguous.scalar_gradient);
    BOOST_TEST(copied.parameters()[0].data() != strided.matrix.data());
    BOOST_TEST(copied.parameters()[1].data() == &strided.scalar);
    BOOST_TEST(copied.parameters()[0][1] == -0.5f); // row-major, for any memory
    BOOST_TEST((copied.parameter_shapes()[0] == std::vector<std::size_t>{2, 3}));
    BOOST_TEST(un::parameter_label(copied, 2) == "parameter 2 (vector)");
}

BOOST_AUTO_TEST_CASE(a_model_that_threw_starts_anew) {
    Network network(true);
    network.throws_at = 0;
    un::WithStrides model(network);
    Batch batch;
    batch.width = 3;
    batch.values = {1, 2, 3};
    un::Pass pass;
    BOOST_CHECK_THROW(model(batch, pass), std::runtime_error);
    network.scalar_gradient = 0; // in place, so the trainer must zero it
    model(batch, pass);
    Network other(true);
    un::WithStrides fresh(other);
    fresh(batch, pass);
    BOOST_TEST(model.gradients()[0][4] == fresh.gradients()[0][4]);
    BOOST_TEST(model.gradients()[2][1] == fresh.gradients()[2][1]);
}

BOOST_AUTO_TEST_CASE(what_makes_no_sense_is_refused) {
    std::vector<float> memory(100);
    float* const data = memory.data();
    const Tensor good{data, {2, 3}, {3, 1}};
    refused({data, {2, 3}, {3}}, good, "2 sizes and 1 strides");
    refused({nullptr, {2, 3}, {3, 1}}, good, "has no memory");
    refused({data, {2, 3}, {0, 1}}, good, "the parameter of parameter 0 with sizes (2, 3) overlap");
    refused({data, {2, 3}, {2, 1}}, good, "overlap");
    refused({data, {2, 3}, {-3, 2}}, good, "overlap");
    refused(good, {data + 50, {3, 2}, {2, 1}}, "has sizes (2, 3) and its gradient (3, 2)");
    refused(good, {data + 50, {2, 3}, {1, 1}}, "the gradient of parameter 0");
    refused(good, {data + 4, {2, 3}, {3, 1}}, "parameter 0 and the gradient of parameter 0 share memory");
}

BOOST_AUTO_TEST_CASE(tensors_that_share_elements_are_refused) {
    struct Two {
        std::vector<float> memory = std::vector<float>(32);
        Tensor second;
        std::array<Tensor, 2> parameter_tensors() { return {Tensor{memory.data(), {3, 2}, {2, 1}}, second}; }
        std::array<Tensor, 2> gradient_tensors() {
            return {Tensor{memory.data() + 12, {3, 2}, {2, 1}}, Tensor{memory.data() + 18, second.sizes, {1, 3}}};
        }
        double operator()(int, un::Pass&) { return 0; }
    } two;
    two.second = {two.memory.data(), {2, 3}, {1, 2}}; // the transpose
    BOOST_CHECK_EXCEPTION(un::WithStrides{two}, un::error, [&](const un::error& e) {
        return std::string(e.what()).find("parameter 0 and parameter 1 share memory") != std::string::npos;
    });
    struct Columns : Two { // of one matrix
        std::array<Tensor, 2> parameter_tensors() {
            return {Tensor{memory.data(), {3}, {2}}, Tensor{memory.data() + 5, {3}, {-2}}};
        }
        std::array<Tensor, 2> gradient_tensors() {
            return {Tensor{memory.data() + 12, {3}, {1}}, Tensor{memory.data() + 15, {3}, {1}}};
        }
    } columns;
    BOOST_CHECK_NO_THROW(un::WithStrides{columns});
}

BOOST_AUTO_TEST_SUITE_END()

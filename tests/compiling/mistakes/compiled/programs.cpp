// Mistakes in first programs that the compiler finds, with its exact messages. ../mistakes.cpp has
// mistakes that show at run time.
#include "unisono/unisono.hpp"

#include "unisono/join.hpp"

#include "models.hpp"

#include <memory>
#include <string>
#include <vector>

namespace un = unisono;

using Batch = un::RowBatch<float>;

struct Memory {
    std::vector<float> w = std::vector<float>(2), g = std::vector<float>(2);
    std::span<float> parameters() { return w; }
    std::span<float> gradients() { return g; }
};
struct WithoutGradients {
    std::vector<float> w = std::vector<float>(2);
    std::span<float> parameters() { return w; }
    double operator()(const Batch&, un::Pass&) { return 0; }
};
struct ReturnsTemporaries {
    std::vector<float> w = std::vector<float>(2), g = std::vector<float>(2);
    std::vector<float> parameters() { return w; }
    std::vector<float> gradients() { return g; }
    double operator()(const Batch&, un::Pass&) { return 0; }
};
struct ReturnsConst : Memory {
    std::span<const float> parameters() { return w; }
    double operator()(const Batch&, un::Pass&) { return 0; }
};
struct OfIntegers {
    std::vector<int> w = std::vector<int>(2);
    std::span<int> parameters() { return w; }
    std::span<int> gradients() { return w; }
    double operator()(const Batch&, un::Pass&) { return 0; }
};
struct OfTwoTypes : Memory {
    std::vector<double> wide = std::vector<double>(2);
    std::span<double> gradients() { return wide; }
    double operator()(const Batch&, un::Pass&) { return 0; }
};
struct WithoutCall : Memory {};
struct WithoutPass : Memory {
    double operator()(const Batch&) { return 0; }
};
struct WithoutLoss : Memory {
    void operator()(const Batch&, un::Pass&) {}
};
struct ChangesBatch : Memory {
    double operator()(Batch&, un::Pass&) { return 0; }
};

int main() {
    un::Group<un::InProcess> world;
    RowModel model;
    std::vector<float> values(8);
    const std::vector<float> constant(8);
    const un::RowData<float> data(values, 2);

#ifdef CASE_control
    // expect-success
    un::run<un::InProcess>(1, [&](auto& ranks) {
        un::Trainer trainer{ranks, model, un::Sgd{.learning_rate = 0.1}};
        trainer.fit(data, {.batch_size = 2});
        trainer.fit(data);
        const un::FitOptions options{.batch_size = 2};
        un::FitOptions changed = options;
        trainer.fit(data, options);
        trainer.fit(data, changed, [](const un::UpdateReport&) {});
        un::all_reduce(ranks, values);
    });
#endif

    // --- the model

#ifdef CASE_no_gradients
    // expect: unisono::Trainer: found a second argument that is no model: it has no gradients(). Required: parameters() and gradients()
    {
        WithoutGradients other;
        un::Trainer trainer{world, other};
    }
#endif

#ifdef CASE_temporaries
    // expect: unisono::Trainer: found a model whose parameters() or gradients() return a temporary that owns its elements, such as a std::vector by value. Required: a reference
    {
        ReturnsTemporaries other;
        un::Trainer trainer{world, other};
    }
#endif

#ifdef CASE_const_parameters
    // expect: unisono::Trainer: found a model whose parameters() or gradients() are const. Required: spans of elements that can be written
    {
        ReturnsConst other;
        un::Trainer trainer{world, other};
    }
#endif

#ifdef CASE_integers
    // expect: its parameters() or gradients() are no memory of one floating type. Required: a span or a range of spans
    {
        OfIntegers other;
        un::Trainer trainer{world, other};
    }
#endif

#ifdef CASE_two_types
    // expect: its parameters and gradients are of different types, or one of them is on a device. Required: the same element type
    {
        OfTwoTypes other;
        un::Trainer trainer{world, other};
    }
#endif

#ifdef CASE_no_call
    // expect: unisono::Trainer: the model cannot be called with this batch. Required: model(batch, pass) that adds the gradient of a `const Batch&`
    {
        WithoutCall other;
        un::Trainer trainer{world, other};
        trainer.fit(data, {.batch_size = 2});
    }
#endif

#ifdef CASE_no_pass
    // expect: its call takes no pass. Required: model(batch, pass), pass being an unisono::Pass&.
    {
        WithoutPass other;
        un::Trainer trainer{world, other};
        trainer.fit(data, {.batch_size = 2});
    }
#endif

#ifdef CASE_no_loss
    // expect: its call returns no loss. Required: model(batch, pass) returns the loss, a number that converts to double.
    {
        WithoutLoss other;
        un::Trainer trainer{world, other};
        trainer.fit(data, {.batch_size = 2});
    }
#endif

#ifdef CASE_batch_not_const
    // expect: its call takes the batch by a reference that is not const. Required: model(batch, pass) that takes `const Batch&`.
    {
        ChangesBatch other;
        un::Trainer trainer{world, other};
        trainer.fit(data, {.batch_size = 2});
    }
#endif

    // --- the trainer

#ifdef CASE_pointer_to_a_model
    // expect: unisono::Trainer: found a pointer as the second argument. Required: the model that it points to: Trainer{world, *model, ...}.
    {
        const auto pointer = std::make_shared<RowModel>();
        un::Trainer trainer{world, pointer};
    }
#endif

#ifdef CASE_no_world
    // expect: unisono::Trainer: found a first argument that is no group. Required: the group first, then the model, then policies
    { un::Trainer trainer{model, un::Sgd{.learning_rate = 0.1}}; }
#endif

#ifdef CASE_model_first
    // expect: unisono::Trainer: found a group where the model belongs, as the second argument. Required: the group first, then the model
    { un::Trainer trainer{model, world}; }
#endif

#ifdef CASE_temporary_model
    // expect: unisono::Trainer: found a group or a model that is a temporary. Required: variables that outlive the trainer
    { un::Trainer trainer{world, RowModel{}}; }
#endif

#ifdef CASE_number_as_policy
    // expect: unisono::Trainer: found an argument that is no policy (its type is the argument of TrainerArgument<...>). Required: after the group and the model only policies
    { un::Trainer trainer{world, model, 0.1}; }
#endif

#ifdef CASE_two_optimizers
    // expect: unisono::Trainer: found two optimizers. Required: at most one. Why: an update is applied to a parameter once.
    { un::Trainer trainer{world, model, un::Sgd{}, un::Adam{}}; }
#endif

#ifdef CASE_copy_of_a_trainer
    // expect: Trainer(const Trainer&) = delete; // other objects refer to it: construct it in place
    {
        un::Trainer trainer{world, model};
        auto second = trainer;
    }
#endif

    // --- fit, evaluate, predict

#ifdef CASE_epochs_as_a_number
    // expect: unisono::Trainer: found a second argument of fit that is no FitOptions. Required: named options, such as trainer.fit(data, {.epochs = 2, .batch_size = 8}).
    {
        un::Trainer trainer{world, model};
        trainer.fit(data, 2, 8);
    }
#endif

#ifdef CASE_vector_as_data
    // expect: unisono::Trainer: found data without batch(indices). Required: a data set
    // expect: for numbers in memory un::RowData(values, width)
    {
        un::Trainer trainer{world, model};
        trainer.fit(values, {.batch_size = 2});
    }
#endif

#ifdef CASE_callback_of_another_type
    // expect: unisono::Trainer: found a third argument of fit that cannot be called with an UpdateReport. Required: a callable such as [](const un::UpdateReport& report) { ... }, or nothing.
    {
        un::Trainer trainer{world, model};
        trainer.fit(data, {.batch_size = 2}, [](const std::string&) {});
    }
#endif

#ifdef CASE_no_evaluate
    // expect: unisono::Trainer: found a model without evaluate(batch, metrics&...) for this data set and these metrics. Required: that function
    {
        un::Trainer trainer{world, model};
        trainer.evaluate(data, {}, un::MeanMetric{});
    }
#endif

#ifdef CASE_no_predict
    // expect: unisono::Trainer: found a model without predict(batch) for this data set. Required: it returns the outputs
    {
        un::Trainer trainer{world, model};
        trainer.predict(data);
    }
#endif

#ifdef CASE_data_of_a_temporary
    // expect: unisono::RowData: found a temporary that owns its elements (a function's result, or std::move). Required: a container with a name
    { un::RowData gone(std::vector<float>(8), 2); }
#endif

    // --- run

#ifdef CASE_body_without_world
    // expect: unisono::run: found a body that cannot be called with the group. Required: a callable that takes the group by reference, such as [](auto& world) { ... }.
    un::run<un::InProcess>(2, [](int) {});
#endif

#ifdef CASE_body_with_a_copy
    // expect: unisono::run: found a body that cannot be called with the group. Required: a callable that takes the group by reference
    un::run<un::InProcess>(2, [](un::Group<un::InProcess>) {});
#endif

#ifdef CASE_run_without_transport
    // expect: unisono::run: found no transport. Required: unisono::run<unisono::InProcess>(ranks, body), or another transport.
    un::run(2, [](auto&) {});
#endif

    // --- collectives

#ifdef CASE_pointer_as_data
    // expect: unisono: found a pointer as the data of a collective. Required: std::span(pointer, count). Why: a pointer does not say how many
    un::all_reduce(world, values.data(), 2);
#endif

#ifdef CASE_const_data
    // expect: Required: the group, data that can be written (not const
    un::all_reduce(world, constant);
#endif

#ifdef CASE_const_receive
    // expect: Required: the group, data that can be written (not const
    un::receive(world, constant, 0);
#endif

#ifdef CASE_strings
    // expect: unisono: found data of a collective that are neither contiguous nor one trivially copyable value. Required: a std::vector (not of bool)
    {
        std::vector<std::string> names(2);
        un::broadcast(world, names, 0);
    }
#endif

#ifdef CASE_gathered_as_another_type
    // expect: Required: the group, the elements to send, memory of the same element type that can be written
    {
        std::vector<double> all(4);
        un::all_gather(world, values, all);
    }
#endif

    // --- headers

#ifdef CASE_no_header_of_a_transport
    // expect: unisono::run: found a transport that is declared and not defined. Required: its header, for instance #include <unisono/tcp.hpp>
    un::run<un::Tcp>(2, [](auto&) {});
#endif

#ifdef CASE_no_header_of_a_policy
    // expect: struct Reproducible; // needs #include <unisono/reproducible.hpp>
    { un::Trainer trainer{world, model, un::Reproducible{}}; }
#endif

#ifdef CASE_no_header_of_a_compression
    // expect: struct TopK; // needs #include <unisono/compression.hpp>
    { un::Trainer trainer{world, model, un::TopK{.density = 0.1}}; }
#endif

#ifdef CASE_no_header_of_a_file
    // expect: class JsonLinesFile; // needs #include <unisono/observe.hpp>
    const auto file = un::JsonLinesFile(world, "run.jsonl");
#endif

#ifdef CASE_no_header_of_strides
    // expect: class WithStrides; // needs #include <unisono/model/strided.hpp>
    const auto strided = un::WithStrides<RowModel>(model);
#endif

#ifdef CASE_no_header_of_checkpoints
    // expect-gcc: error: variable 'unisono::v0::Checkpoints checkpoints' has initializer but incomplete type
    // expect-clang: class Checkpoints; // needs #include <unisono/checkpoint.hpp>
    un::Checkpoints checkpoints("folder");
#endif
}

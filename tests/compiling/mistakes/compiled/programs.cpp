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

// case: control
// expect-success
#ifdef CASE_control
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

// case: no_gradients
// expect: unisono::Trainer: found a second argument that is no model: it has no gradients(). Required: parameters() and gradients()
#ifdef CASE_no_gradients
    {
        WithoutGradients other;
        un::Trainer trainer{world, other};
    }
#endif

// case: temporaries
// expect: unisono::Trainer: found a model whose parameters() or gradients() return a temporary that owns its elements, such as a std::vector by value. Required: a reference
#ifdef CASE_temporaries
    {
        ReturnsTemporaries other;
        un::Trainer trainer{world, other};
    }
#endif

// case: const_parameters
// expect: unisono::Trainer: found a model whose parameters() or gradients() are const. Required: spans of elements that can be written
#ifdef CASE_const_parameters
    {
        ReturnsConst other;
        un::Trainer trainer{world, other};
    }
#endif

// case: integers
// expect: its parameters() or gradients() are no memory of one floating type. Required: a span or a range of spans
#ifdef CASE_integers
    {
        OfIntegers other;
        un::Trainer trainer{world, other};
    }
#endif

// case: two_types
// expect: its parameters and gradients are of different types, or one of them is on a device. Required: the same element type
#ifdef CASE_two_types
    {
        OfTwoTypes other;
        un::Trainer trainer{world, other};
    }
#endif

// case: no_call
// expect: unisono::Trainer: the model cannot be called with this batch. Required: model(batch, pass) that adds the gradient of a `const Batch&`
#ifdef CASE_no_call
    {
        WithoutCall other;
        un::Trainer trainer{world, other};
        trainer.fit(data, {.batch_size = 2});
    }
#endif

// case: no_pass
// expect: its call takes no pass. Required: model(batch, pass), pass being an unisono::Pass&.
#ifdef CASE_no_pass
    {
        WithoutPass other;
        un::Trainer trainer{world, other};
        trainer.fit(data, {.batch_size = 2});
    }
#endif

// case: no_loss
// expect: its call returns no loss. Required: model(batch, pass) returns the loss, a number that converts to double.
#ifdef CASE_no_loss
    {
        WithoutLoss other;
        un::Trainer trainer{world, other};
        trainer.fit(data, {.batch_size = 2});
    }
#endif

// case: batch_not_const
// expect: its call takes the batch by a reference that is not const. Required: model(batch, pass) that takes `const Batch&`.
#ifdef CASE_batch_not_const
    {
        ChangesBatch other;
        un::Trainer trainer{world, other};
        trainer.fit(data, {.batch_size = 2});
    }
#endif

// --- the trainer

// case: pointer_to_a_model
// expect: unisono::Trainer: found a pointer as the second argument. Required: the model that it points to: Trainer{world, *model, ...}.
#ifdef CASE_pointer_to_a_model
    {
        const auto pointer = std::make_shared<RowModel>();
        un::Trainer trainer{world, pointer};
    }
#endif

// case: no_world
// expect: unisono::Trainer: found a first argument that is no group. Required: the group first, then the model, then policies
#ifdef CASE_no_world
    { un::Trainer trainer{model, un::Sgd{.learning_rate = 0.1}}; }
#endif

// case: model_first
// expect: unisono::Trainer: found a group where the model belongs, as the second argument. Required: the group first, then the model
#ifdef CASE_model_first
    { un::Trainer trainer{model, world}; }
#endif

// case: temporary_model
// expect: unisono::Trainer: found a group or a model that is a temporary. Required: variables that outlive the trainer
#ifdef CASE_temporary_model
    { un::Trainer trainer{world, RowModel{}}; }
#endif

// case: number_as_policy
// expect: unisono::Trainer: found an argument that is no policy (its type is the argument of TrainerArgument<...>). Required: after the group and the model only policies
#ifdef CASE_number_as_policy
    { un::Trainer trainer{world, model, 0.1}; }
#endif

// case: two_optimizers
// expect: unisono::Trainer: found two optimizers. Required: at most one. Why: an update is applied to a parameter once.
#ifdef CASE_two_optimizers
    { un::Trainer trainer{world, model, un::Sgd{}, un::Adam{}}; }
#endif

// case: copy_of_a_trainer
// expect: Trainer(const Trainer&) = delete; // other objects refer to it: construct it in place
#ifdef CASE_copy_of_a_trainer
    {
        un::Trainer trainer{world, model};
        auto second = trainer;
    }
#endif

// --- fit, evaluate, predict

// case: epochs_as_a_number
// expect: unisono::Trainer: found a second argument of fit that is no FitOptions. Required: named options, such as trainer.fit(data, {.epochs = 2, .batch_size = 8}).
#ifdef CASE_epochs_as_a_number
    {
        un::Trainer trainer{world, model};
        trainer.fit(data, 2, 8);
    }
#endif

// case: vector_as_data
// expect: unisono::Trainer: found data without batch(indices). Required: a data set
// expect: for numbers in memory un::RowData(values, width)
#ifdef CASE_vector_as_data
    {
        un::Trainer trainer{world, model};
        trainer.fit(values, {.batch_size = 2});
    }
#endif

// case: callback_of_another_type
// expect: unisono::Trainer: found a third argument of fit that cannot be called with an UpdateReport. Required: a callable such as [](const un::UpdateReport& report) { ... }, or nothing.
#ifdef CASE_callback_of_another_type
    {
        un::Trainer trainer{world, model};
        trainer.fit(data, {.batch_size = 2}, [](const std::string&) {});
    }
#endif

// case: no_evaluate
// expect: unisono::Trainer: found a model without evaluate(batch, metrics&...) for this data set and these metrics. Required: that function
#ifdef CASE_no_evaluate
    {
        un::Trainer trainer{world, model};
        trainer.evaluate(data, {}, un::MeanMetric{});
    }
#endif

// case: no_predict
// expect: unisono::Trainer: found a model without predict(batch) for this data set. Required: it returns the outputs
#ifdef CASE_no_predict
    {
        un::Trainer trainer{world, model};
        trainer.predict(data);
    }
#endif

// case: data_of_a_temporary
// expect: unisono::RowData: found a temporary that owns its elements (a function's result, or std::move). Required: a container with a name
#ifdef CASE_data_of_a_temporary
    { un::RowData gone(std::vector<float>(8), 2); }
#endif

// --- run

// case: body_without_world
// expect: unisono::run: found a body that cannot be called with the group. Required: a callable that takes the group by reference, such as [](auto& world) { ... }.
#ifdef CASE_body_without_world
    un::run<un::InProcess>(2, [](int) {});
#endif

// case: body_with_a_copy
// expect: unisono::run: found a body that cannot be called with the group. Required: a callable that takes the group by reference
#ifdef CASE_body_with_a_copy
    un::run<un::InProcess>(2, [](un::Group<un::InProcess>) {});
#endif

// case: run_without_transport
// expect: unisono::run: found no transport. Required: unisono::run<unisono::InProcess>(ranks, body), or another transport.
#ifdef CASE_run_without_transport
    un::run(2, [](auto&) {});
#endif

// --- collectives

// case: pointer_as_data
// expect: unisono: found a pointer as the data of a collective. Required: std::span(pointer, count). Why: a pointer does not say how many
#ifdef CASE_pointer_as_data
    un::all_reduce(world, values.data(), 2);
#endif

// case: const_data
// expect: Required: the group, data that can be written (not const
#ifdef CASE_const_data
    un::all_reduce(world, constant);
#endif

// case: const_receive
// expect: Required: the group, data that can be written (not const
#ifdef CASE_const_receive
    un::receive(world, constant, 0);
#endif

// case: strings
// expect: unisono: found data of a collective that are neither contiguous nor one trivially copyable value. Required: a std::vector (not of bool)
#ifdef CASE_strings
    {
        std::vector<std::string> names(2);
        un::broadcast(world, names, 0);
    }
#endif

// case: gathered_as_another_type
// expect: Required: the group, the elements to send, memory of the same element type that can be written
#ifdef CASE_gathered_as_another_type
    {
        std::vector<double> all(4);
        un::all_gather(world, values, all);
    }
#endif

// --- headers

// case: no_header_of_a_transport
// expect: unisono::run: found a transport that is declared and not defined. Required: its header, for instance #include <unisono/tcp.hpp>
#ifdef CASE_no_header_of_a_transport
    un::run<un::Tcp>(2, [](auto&) {});
#endif

// case: no_header_of_a_policy
// expect: struct Reproducible; // needs #include <unisono/reproducible.hpp>
#ifdef CASE_no_header_of_a_policy
    { un::Trainer trainer{world, model, un::Reproducible{}}; }
#endif

// case: no_header_of_a_compression
// expect: struct TopK; // needs #include <unisono/compression.hpp>
#ifdef CASE_no_header_of_a_compression
    { un::Trainer trainer{world, model, un::TopK{.density = 0.1}}; }
#endif

// case: no_header_of_a_file
// expect: class JsonLinesFile; // needs #include <unisono/observe.hpp>
#ifdef CASE_no_header_of_a_file
    const auto file = un::JsonLinesFile(world, "run.jsonl");
#endif

// case: no_header_of_strides
// expect: class WithStrides; // needs #include <unisono/model/strided.hpp>
#ifdef CASE_no_header_of_strides
    const auto strided = un::WithStrides<RowModel>(model);
#endif

// case: no_header_of_checkpoints
// expect-gcc: error: variable 'unisono::v0::Checkpoints checkpoints' has initializer but incomplete type
// expect-clang: class Checkpoints; // needs #include <unisono/checkpoint.hpp>
#ifdef CASE_no_header_of_checkpoints
    un::Checkpoints checkpoints("folder");
#endif
}

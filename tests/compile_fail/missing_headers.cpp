// A name that the umbrella declares and does not define: one error, with the header that defines it.
#include "unisono/unisono.hpp"

namespace un = unisono;

struct Model {
    float weight = 0, gradient = 0;
    std::span<float> parameters() { return {&weight, 1}; }
    std::span<float> gradients() { return {&gradient, 1}; }
    double operator()(const un::RowBatch<float>&, un::Pass&) { return 0; }
};

int main() {
    un::Group<un::InProcess> world;
    Model model;

// case: summation
// expect: struct Reproducible; // needs #include <unisono/reproducible.hpp>
#ifdef CASE_summation
    un::Trainer summed{world, model, un::Reproducible{}};
#endif

// case: compression
// expect: struct TopK; // needs #include <unisono/compression/top_k.hpp>
#ifdef CASE_compression
    un::Trainer compressed{world, model, un::TopK{.density = 0.1}};
#endif

// case: file
// expect: class JsonLinesFile; // needs #include <unisono/observe/metric_files.hpp>
#ifdef CASE_file
    const auto file = un::JsonLinesFile(world, "run.jsonl");
#endif

// case: template_of_models
// expect: class WithStrides; // needs #include <unisono/model/strided.hpp>
#ifdef CASE_template_of_models
    const auto strided = un::WithStrides<Model>(model);
#endif

// case: transport
// expect: unisono::run: found a transport that is declared and not defined. Required: its header, for instance #include <unisono/tcp.hpp>
#ifdef CASE_transport
    un::run<un::Tcp>(2, [](auto&) {});
#endif
}

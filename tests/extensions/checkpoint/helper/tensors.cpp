// For check.py: `tensors write FOLDER` trains a little and saves; `tensors show FILE` prints the
// contents of a safetensors file, or why it is refused.
#include "../training.hpp"

#include "unisono/extensions/checkpoint/safetensors.hpp"

#include <cstdio>
#include <cstring>

namespace un = unisono;

namespace {

int show(const char* path) {
    const un::TensorFile file(path);
    for (const un::Tensor& one : file.tensors()) {
        std::printf("%s %s [", one.name.c_str(), one.type.c_str());
        for (const std::uint64_t n : one.shape) std::printf(" %llu", static_cast<unsigned long long>(n));
        std::printf(" ]");
        if (one.type == "F32") {
            std::vector<float> numbers(one.bytes() / sizeof(float));
            file.read(one, std::span(numbers));
            for (const float x : numbers) std::printf(" %a", static_cast<double>(x));
        } else if (one.type == "F64") {
            std::vector<double> numbers(one.bytes() / sizeof(double));
            file.read(one, std::span(numbers));
            for (const double x : numbers) std::printf(" %a", x);
        }
        std::printf("\n");
    }
    return 0;
}

} // namespace

int main(int argc, char** argv) {
    try {
        if (argc == 3 && std::strcmp(argv[1], "show") == 0) return show(argv[2]);
        if (argc != 3 || std::strcmp(argv[1], "write") != 0) return 2;
        unisono_test::train({.ranks = 3, .sharded = true, .folder = argv[2], .save_every = 6, .stop_after = 6});
        return 0;
    } catch (const un::error& failed) {
        std::printf("refused: %s\n", failed.what());
        return 1;
    }
}

// A language model of letters in CUDA C, in the style of llm.c: flat buffers, kernels, AdamW.
// Unisono joins the ranks, averages their gradients, and shards AdamW's state (ZeRO stage 1).
#include <cuda_runtime.h>

#include <unisono/join.hpp>
#include <unisono/nccl.hpp>
#include <unisono/unisono.hpp>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <vector>

namespace un = unisono;
const char text[] = "shall i compare thee to a summers day thou art more lovely and more temperate rough winds do "
                    "shake the darling buds of may and summers lease hath all too short a date sometime too hot the "
                    "eye of heaven shines and often is his gold complexion dimmd and every fair from fair sometime "
                    "declines by chance or natures changing course untrimmd ";
const int letters = 27, context = 3, width = 32, batch = 64, steps = 100;
// The flat order of the parameters: weights and biases of two layers.
const int W1 = 0, B1 = W1 + context * letters * width, W2 = B1 + width, B2 = W2 + width * letters, count = B2 + letters;

void check(bool good, const char* what) {
    if (good) return;
    throw std::runtime_error(what); // all ranks learn it
}
#define CUDA(call) check((call) == cudaSuccess, #call)

__global__ void hidden_layer(float* out, const float* p, const int* tokens, int rows) {
    const int n = blockIdx.x * blockDim.x + threadIdx.x, i = n / width, j = n % width;
    if (i >= rows) return;
    float sum = p[B1 + j];
    for (int k = 0; k < context; ++k) sum += p[W1 + (k * letters + tokens[i * (context + 1) + k]) * width + j];
    out[n] = tanhf(sum);
}
// A thread has a row: softmax, cross entropy, and the gradient with respect to the logits.
__global__ void cross_entropy(float* losses, float* d_logits, const float* hidden, const float* p, const int* tokens,
                              int rows) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows) return;
    float* const d = d_logits + i * letters;
    float most = -1e30f, sum = 0;
    for (int k = 0; k < letters; ++k) {
        d[k] = p[B2 + k];
        for (int j = 0; j < width; ++j) d[k] += hidden[i * width + j] * p[W2 + j * letters + k];
        most = fmaxf(most, d[k]);
    }
    const int target = tokens[i * (context + 1) + context];
    const float logit = d[target];
    for (int k = 0; k < letters; ++k) sum += d[k] = expf(d[k] - most);
    for (int k = 0; k < letters; ++k) d[k] = (d[k] / sum - (k == target ? 1.0f : 0.0f)) / rows;
    losses[i] = logf(sum) - (logit - most);
}
// The gradients, without atomics: a thread has a weight. The rest of the threads have the biases.
__global__ void output_gradient(float* g, const float* d_logits, const float* hidden, int rows) {
    const int n = blockIdx.x * blockDim.x + threadIdx.x, j = n / letters, k = n % letters;
    if (j > width) return;
    for (int i = 0; i < rows; ++i) g[W2 + n] += (j == width ? 1.0f : hidden[i * width + j]) * d_logits[i * letters + k];
}
__global__ void hidden_gradient(float* d_hidden, const float* d_logits, const float* hidden, const float* p, int rows) {
    const int n = blockIdx.x * blockDim.x + threadIdx.x, i = n / width, j = n % width;
    if (i >= rows) return;
    float sum = 0;
    for (int k = 0; k < letters; ++k) sum += d_logits[i * letters + k] * p[W2 + j * letters + k];
    d_hidden[n] = sum * (1 - hidden[n] * hidden[n]);
}
__global__ void input_gradient(float* g, const float* d_hidden, const int* tokens, int rows) {
    const int n = blockIdx.x * blockDim.x + threadIdx.x, j = n % width, k = n / width / letters,
              letter = n / width % letters;
    if (n >= W2) return;
    for (int i = 0; i < rows; ++i)
        if (k == context || tokens[i * (context + 1) + k] == letter) g[W1 + n] += d_hidden[i * width + j];
}
__global__ void mean(float* out, const float* values, int rows) {
    *out = 0;
    for (int i = 0; i < rows; ++i) *out += values[i] / rows;
}
int blocks(int threads) { return (threads + 127) / 128; }
struct Net {
    float *params, *grads, *hidden, *d_hidden, *d_logits, *losses; // after the gradients: the mean loss
    int* tokens;
    cudaStream_t compute;

    // Adds the gradient of the mean loss of these rows.
    void forward_backward(const std::vector<int>& rows_of_tokens) {
        const int rows = static_cast<int>(rows_of_tokens.size()) / (context + 1);
        CUDA(cudaMemcpyAsync(tokens, rows_of_tokens.data(), rows_of_tokens.size() * sizeof(int), cudaMemcpyHostToDevice,
                             compute));
        hidden_layer<<<blocks(rows * width), 128, 0, compute>>>(hidden, params, tokens, rows);
        cross_entropy<<<blocks(rows), 128, 0, compute>>>(losses, d_logits, hidden, params, tokens, rows);
        output_gradient<<<blocks(count - W2), 128, 0, compute>>>(grads, d_logits, hidden, rows);
        hidden_gradient<<<blocks(rows * width), 128, 0, compute>>>(d_hidden, d_logits, hidden, params, rows);
        input_gradient<<<blocks(W2), 128, 0, compute>>>(grads, d_hidden, tokens, rows);
        mean<<<1, 1, 0, compute>>>(grads + count, losses, rows);
        CUDA(cudaGetLastError());
    }
    float loss() const {
        float mean = 0;
        CUDA(cudaMemcpyAsync(&mean, grads + count, sizeof mean, cudaMemcpyDeviceToHost, compute));
        CUDA(cudaStreamSynchronize(compute));
        return mean;
    }
    std::vector<un::DeviceSpan<float>> parameters() { return {{params, count}}; }
    std::vector<un::DeviceSpan<float>> gradients() { return {{grads, count}}; }
    cudaStream_t stream() const { return compute; }
    double operator()(const std::vector<int>& rows, un::Pass&) { return forward_backward(rows), loss(); }
};
void make(Net& net) {
    CUDA(cudaStreamCreateWithFlags(&net.compute, cudaStreamNonBlocking));
    for (float** one : {&net.params, &net.grads}) {
        CUDA(cudaMalloc(one, (count + 1) * sizeof(float)));
        CUDA(cudaMemsetAsync(*one, 0, (count + 1) * sizeof(float), net.compute));
    }
    for (float** one : {&net.hidden, &net.d_hidden, &net.d_logits, &net.losses})
        CUDA(cudaMalloc(one, batch * width * sizeof(float)));
    CUDA(cudaMalloc(&net.tokens, batch * (context + 1) * sizeof(int)));
    std::vector<float> first(count);
    unsigned random = 1;
    for (float& one : first) one = ((random = random * 1664525u + 1013904223u) >> 8) / 16777216.0f * 0.4f - 0.2f;
    CUDA(cudaMemcpyAsync(net.params, first.data(), count * sizeof(float), cudaMemcpyHostToDevice, net.compute));
    CUDA(cudaStreamSynchronize(net.compute));
}
// This rank's share of a step's batch: rows of a context and the letter that follows.
std::vector<int> share(int step, int rank, int ranks) {
    std::vector<int> tokens;
    for (int i = batch * rank / ranks; i < batch * (rank + 1) / ranks; ++i) {
        const char* const at = text + (step * batch + i) * 7 % static_cast<int>(std::strlen(text) - context);
        for (int k = 0; k <= context; ++k) tokens.push_back(at[k] == ' ' ? 26 : at[k] - 'a');
    }
    return tokens;
}

int main() try {
    auto world = un::join<un::Nccl>({.timeout = std::chrono::minutes(1)});
    const int rank = world.rank(), ranks = world.size();
    CUDA(cudaSetDevice(world.endpoint().device()));
    Net net;
    make(net);
    un::Trainer trainer{world, net, un::StateSharding{}, un::AdamW{.learning_rate = 0.01, .weight_decay = 0.1}};
    for (int step = 1; step <= steps; ++step) {
        const std::vector<int> rows = share(step, rank, ranks);
        const double loss = trainer.step(rows).loss;
        if (rank == 0 && step % 10 == 0) std::printf("step %3d, loss %.6f\n", step, loss);
    }
    return 0;
} catch (const std::exception& failed) {
    std::fprintf(stderr, "%s\n", failed.what());
    return 1;
}

// A language model of letters in CUDA C, in the style of llm.c: flat buffers, kernels, AdamW.
// MPI starts the ranks, and NCCL averages their gradients.
#include <cuda_runtime.h>
#include <mpi.h>
#include <nccl.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

const char text[] = "shall i compare thee to a summers day thou art more lovely and more temperate rough winds do "
                    "shake the darling buds of may and summers lease hath all too short a date sometime too hot the "
                    "eye of heaven shines and often is his gold complexion dimmd and every fair from fair sometime "
                    "declines by chance or natures changing course untrimmd ";
const int letters = 27, context = 3, width = 32, batch = 64, steps = 100;
// The flat order of the parameters: weights and biases of two layers.
const int W1 = 0, B1 = W1 + context * letters * width, W2 = B1 + width, B2 = W2 + width * letters, count = B2 + letters;

void check(bool good, const char* what) {
    if (good) return;
    std::fprintf(stderr, "%s failed\n", what);
    std::exit(1);
}
#define CUDA(call) check((call) == cudaSuccess, #call)
#define NCCL(call) check((call) == ncclSuccess, #call)

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
__global__ void adamw(float* p, const float* g, float* m, float* v, int step) {
    const int n = blockIdx.x * blockDim.x + threadIdx.x;
    if (n >= count) return;
    const float rate = 0.01f, beta1 = 0.9f, beta2 = 0.999f, epsilon = 1e-8f, decay = 0.1f;
    m[n] = beta1 * m[n] + (1 - beta1) * g[n];
    v[n] = beta2 * v[n] + (1 - beta2) * g[n] * g[n];
    const float first = m[n] / (1 - powf(beta1, step)), second = v[n] / (1 - powf(beta2, step));
    p[n] -= rate * (first / (sqrtf(second) + epsilon) + decay * p[n]);
}

int blocks(int threads) { return (threads + 127) / 128; }
struct Net {
    float *params, *grads, *hidden, *d_hidden, *d_logits, *losses; // after the gradients: the mean loss
    float *m, *v;                                                  // AdamW's state
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
};
void make(Net& net) {
    CUDA(cudaStreamCreateWithFlags(&net.compute, cudaStreamNonBlocking));
    for (float** one : {&net.params, &net.grads, &net.m, &net.v}) {
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

int main(int argc, char** argv) {
    int rank = 0, ranks = 0, devices = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    CUDA(cudaGetDeviceCount(&devices));
    CUDA(cudaSetDevice(rank % devices));
    ncclUniqueId id;
    if (rank == 0) NCCL(ncclGetUniqueId(&id));
    MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
    ncclComm_t communicator;
    NCCL(ncclCommInitRank(&communicator, ranks, id, rank));
    Net net;
    make(net);
    for (int step = 1; step <= steps; ++step) {
        const std::vector<int> rows = share(step, rank, ranks);
        CUDA(cudaMemsetAsync(net.grads, 0, count * sizeof(float), net.compute));
        net.forward_backward(rows);
        NCCL(ncclAllReduce(net.grads, net.grads, count + 1, ncclFloat, ncclAvg, communicator, net.compute));
        adamw<<<blocks(count), 128, 0, net.compute>>>(net.params, net.grads, net.m, net.v, step);
        const float loss = net.loss();
        if (rank == 0 && step % 10 == 0) std::printf("step %3d, loss %.6f\n", step, loss);
    }
    NCCL(ncclCommDestroy(communicator));
    MPI_Finalize();
    return 0;
}

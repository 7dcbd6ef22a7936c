/* A training loop in plain C, in the style of llm.c, whose gradients are averaged over the ranks with four lines of
 * Unisono (marked). `c_gradients` alone, or `unisono-run -n 2 c_gradients`: the same samples, whatever the number of ranks. */
#include <unisono/c.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { inputs = 8, hidden = 32, batch = 64, steps = 300 };
enum { parameter_count = hidden * inputs + hidden + hidden + 1 };

typedef struct { /* as llm.c has them: one buffer of parameters, and one of gradients in the same order */
    float params[parameter_count];
    float grads[parameter_count];
} Model;

static unsigned random_state = 1337;
static float random_number(void) { /* in [-1, 1) */
    random_state = random_state * 1664525u + 1013904223u;
    return (float)(random_state >> 8) / (float)(1 << 23) - 1.0f;
}

/* Sample `index` of an endless data set: y = sin(x0) * x1 + x2, from a hash of the index. */
static float sample(unsigned index, float* x) {
    unsigned h = index * 2654435761u + 1;
    for (int i = 0; i < inputs; ++i) {
        h = h * 1664525u + 1013904223u;
        x[i] = (float)(h >> 8) / (float)(1 << 23) - 1.0f;
    }
    return sinf(3.0f * x[0]) * x[1] + x[2];
}

/* Adds the gradient of half the squared error of one sample, over `batch`; returns the error's part of the loss. */
static float forward_backward(Model* model, const float* x, float y) {
    const float *w1 = model->params, *b1 = w1 + hidden * inputs, *w2 = b1 + hidden, *b2 = w2 + hidden;
    float *dw1 = model->grads, *db1 = dw1 + hidden * inputs, *dw2 = db1 + hidden, *db2 = dw2 + hidden;
    float h[hidden], out = *b2;
    for (int j = 0; j < hidden; ++j) {
        float sum = b1[j];
        for (int i = 0; i < inputs; ++i) sum += w1[j * inputs + i] * x[i];
        h[j] = tanhf(sum);
        out += w2[j] * h[j];
    }
    const float d = (out - y) / batch;
    *db2 += d;
    for (int j = 0; j < hidden; ++j) {
        dw2[j] += d * h[j];
        const float dh = d * w2[j] * (1.0f - h[j] * h[j]);
        db1[j] += dh;
        for (int i = 0; i < inputs; ++i) dw1[j * inputs + i] += dh * x[i];
    }
    return 0.5f * (out - y) * (out - y) / batch;
}

static void check(int status) {
    if (status == UNISONO_OK) return;
    fprintf(stderr, "%s\n", unisono_last_error());
    exit(1); /* the other ranks' calls return UNISONO_PEER_LOST, with this rank */
}

int main(void) {
    unisono_world* world;
    check(unisono_join(&world, NULL)); /* 1 */
    const int rank = unisono_rank(world), ranks = unisono_size(world);
    static Model model;
    for (int i = 0; i < parameter_count; ++i) model.params[i] = 0.5f * random_number();
    check(unisono_broadcast(world, model.params, parameter_count, sizeof(float), 0)); /* 2 */

    float loss = 0;
    for (unsigned step = 0; step < steps; ++step) {
        memset(model.grads, 0, sizeof model.grads);
        loss = 0;
        for (unsigned i = (unsigned)rank; i < batch; i += (unsigned)ranks) {
            float x[inputs];
            const float y = sample(step * batch + i, x);
            loss += forward_backward(&model, x, y);
        }
        check(unisono_all_reduce(world, model.grads, model.grads, parameter_count, UNISONO_FLOAT32, UNISONO_SUM)); /* 3 */
        for (int i = 0; i < parameter_count; ++i) model.params[i] -= 0.2f * model.grads[i];
    }
    check(unisono_all_reduce(world, &loss, &loss, 1, UNISONO_FLOAT32, UNISONO_SUM));
    if (rank == 0) printf("loss %.3f\n", (double)loss);
    unisono_leave(world); /* 4 */
    return 0;
}

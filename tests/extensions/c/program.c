/* Every call of unisono/c.h, on as many ranks as the launcher has started. One argument: the transport. */
#define _POSIX_C_SOURCE 200809L /* fork, sleep */
#include <unisono/c.h>

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int rank, ranks;

#define REQUIRE(condition)                                                                                             \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "rank %d, line %d: %s (%s)\n", rank, __LINE__, #condition, unisono_last_error());          \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)
#define OK(call) REQUIRE((call) == UNISONO_OK)

enum { most = 8 };

typedef struct {
    float loss;
    int32_t who;
} best;

static void smaller_loss(const void* in, void* in_out, size_t count, void* calls) {
    const best* a = in;
    best* b = in_out;
    for (size_t i = 0; i < count; ++i)
        if (a[i].loss < b[i].loss || (a[i].loss == b[i].loss && a[i].who < b[i].who)) b[i] = a[i];
    ++*(int*)calls;
}

static void add_numbers(const void* in, void* in_out, size_t count, void* context) {
    const int16_t* a = in;
    int16_t* b = in_out;
    for (size_t i = 0; i < count; ++i) b[i] = (int16_t)(a[i] + b[i]);
    (void)context;
}

static void reductions(unisono_world* world) {
    float x[3] = {(float)rank + 1, 2, (float)rank};
    OK(unisono_all_reduce(world, x, x, 3, UNISONO_FLOAT32, UNISONO_SUM));
    REQUIRE(x[0] == (float)(ranks * (ranks + 1) / 2) && x[1] == 2 * (float)ranks);
    double y[2] = {2, (double)rank}, z[2] = {-1, -1};
    OK(unisono_all_reduce(world, y, z, 2, UNISONO_FLOAT64, UNISONO_PRODUCT));
    REQUIRE(z[0] == ldexp(1, ranks) && y[1] == rank);
    int64_t least = 10 - rank, found = 0;
    OK(unisono_all_reduce(world, &least, &found, 1, UNISONO_INT64, UNISONO_MIN));
    REQUIRE(found == 11 - ranks);
    uint8_t byte = (uint8_t)(rank + 5), largest = 0;
    OK(unisono_reduce(world, &byte, &largest, 1, UNISONO_UINT8, UNISONO_MAX, ranks - 1));
    REQUIRE(largest == (rank == ranks - 1 ? ranks + 4 : 0));
    size_t bytes = ((size_t)1 << 63) + (size_t)rank, most_bytes = 0;
    OK(unisono_all_reduce(world, &bytes, &most_bytes, 1, UNISONO_UINT64, UNISONO_MAX));
    REQUIRE(most_bytes == ((size_t)1 << 63) + (size_t)ranks - 1);
    uint32_t count = 3, counts = 0;
    OK(unisono_all_reduce(world, &count, &counts, 1, UNISONO_UINT32, UNISONO_SUM));
    REQUIRE(counts == 3u * (uint32_t)ranks);

    best mine = {(float)((rank + 1) % ranks), rank}, winner;
    int calls = 0;
    OK(unisono_all_reduce_by(world, &mine, &winner, 1, sizeof mine, smaller_loss, &calls));
    REQUIRE(winner.loss == 0 && winner.who == ranks - 1 && (calls > 0 || ranks == 1));
    winner.who = -1;
    OK(unisono_reduce_by(world, &mine, &winner, 1, sizeof mine, smaller_loss, &calls, 0));
    REQUIRE(winner.who == (rank == 0 ? ranks - 1 : -1));

    int32_t all[2 * most], own[2];
    for (int i = 0; i < 2 * ranks; ++i) all[i] = i + rank;
    OK(unisono_reduce_scatter(world, all, own, 2, UNISONO_INT32, UNISONO_SUM));
    REQUIRE(own[1] == ranks * (2 * rank + 1) + ranks * (ranks - 1) / 2);
    int16_t small[most], sum = 0;
    for (int i = 0; i < ranks; ++i) small[i] = (int16_t)(i + 1);
    OK(unisono_reduce_scatter_by(world, small, &sum, 1, sizeof sum, add_numbers, NULL));
    REQUIRE(sum == ranks * (rank + 1));
}

/* Integers of every width by every operation, against the same on numbers of 64 bits. */
static void integers(unisono_world* world) {
    const unisono_type types[] = {UNISONO_INT8,  UNISONO_INT16,  UNISONO_INT32,  UNISONO_INT64,
                                  UNISONO_UINT8, UNISONO_UINT16, UNISONO_UINT32, UNISONO_UINT64};
    for (int t = 0; t < 8; ++t) {
        const size_t bytes = unisono_type_bytes(types[t]);
        for (int op = UNISONO_SUM; op <= UNISONO_XOR; ++op) {
            uint64_t mine = (uint64_t)(5 + 3 * rank), sum = 0, expected = 5; /* the first bytes of small numbers are they */
            for (int r = 1; r < ranks; ++r) {
                const uint64_t other = (uint64_t)(5 + 3 * r);
                if (op == UNISONO_SUM) expected += other;
                if (op == UNISONO_PRODUCT) expected *= other;
                if (op == UNISONO_MAX) expected = other;
                if (op == UNISONO_AND) expected &= other;
                if (op == UNISONO_OR) expected |= other;
                if (op == UNISONO_XOR) expected ^= other;
            }
            OK(unisono_all_reduce(world, &mine, &sum, 1, types[t], (unisono_op)op));
            REQUIRE(sum == (bytes == 8 ? expected : expected & (((uint64_t)1 << (8 * bytes)) - 1)));
        }
    }
    int8_t small = (int8_t)(rank == 0 ? -100 : 100), least = 0; /* bytes with a sign */
    OK(unisono_all_reduce(world, &small, &least, 1, UNISONO_INT8, UNISONO_MIN));
    REQUIRE(least == -100);
}

static void add_many(const void* in, void* in_out, size_t count, void* each) {
    add_numbers(in, in_out, count * *(const size_t*)each, NULL);
}

/* One element for each rank, larger than any block of the library's. */
static void large_elements(unisono_world* world) {
    const size_t sizes[] = {2500, 700000};
    for (size_t s = 0; s < 2; ++s) {
        size_t each = sizes[s];
        int16_t* in = malloc((size_t)ranks * each * sizeof *in);
        int16_t* sum = malloc(each * sizeof *sum);
        REQUIRE(in != NULL && sum != NULL);
        for (size_t i = 0; i < (size_t)ranks * each; ++i) in[i] = (int16_t)(i % 1000 + (size_t)rank);
        OK(unisono_reduce_scatter_by(world, in, sum, 1, each * sizeof *in, add_many, &each));
        for (size_t i = 0; i < each; ++i)
            REQUIRE(sum[i] == (int)(((size_t)rank * each + i) % 1000) * ranks + ranks * (ranks - 1) / 2);
        free(in);
        free(sum);
    }
}

/* Rank r has r + 1 elements, at 10 r. */
static void blocks(unisono_world* world) {
    size_t counts[most], places[most], sends[most], backwards[most];
    int32_t all[10 * most], out[10 * most], mine[most];
    for (int r = 0; r < ranks; ++r) {
        counts[r] = (size_t)r + 1;
        places[r] = 10 * (size_t)r;
        sends[r] = (size_t)rank + 1;
        backwards[r] = 10 * (size_t)(ranks - 1 - r);
    }
    for (int i = 0; i <= rank; ++i) mine[i] = 100 * rank + i;
    memset(all, -1, sizeof all);
    OK(unisono_all_gather_v(world, mine, all, counts, places, sizeof *all));
    for (int r = 0; r < ranks; ++r) REQUIRE(all[10 * r + r] == 101 * r && all[10 * r + r + 1] == -1);
    memset(all, -1, sizeof all);
    OK(unisono_gather_v(world, mine, all, counts, NULL, sizeof *all, 0));
    REQUIRE(all[ranks * (ranks + 1) / 2 - 1] == (rank == 0 ? 101 * (ranks - 1) : -1));
    OK(unisono_broadcast(world, all, 10 * most, sizeof *all, 0));
    memset(mine, -1, sizeof mine);
    OK(unisono_scatter_v(world, all, counts, NULL, mine, sizeof *all, ranks - 1));
    REQUIRE(mine[rank] == 101 * rank);
    for (int i = 0; i < 10 * most; ++i) all[i] = i;
    OK(unisono_reduce_scatter_v(world, all, counts, places, mine, UNISONO_INT32, UNISONO_SUM));
    REQUIRE(mine[rank] == ranks * 11 * rank);
    OK(unisono_reduce_scatter_v_by(world, all, counts, places, mine, 2, add_numbers, NULL));
    memset(out, -1, sizeof out);
    /* From rank i, counts[j] elements go to rank j: it gets its own number of elements from each, the last rank's first. */
    OK(unisono_all_to_all_v(world, all, counts, places, out, sends, backwards, sizeof *all));
    for (int r = 0; r < ranks; ++r) REQUIRE(out[10 * (ranks - 1 - r) + rank] == 11 * rank);
}

static void moves(unisono_world* world) {
    int32_t mine = rank, all[most], other = -1;
    OK(unisono_all_gather(world, &mine, all, 1, sizeof mine));
    REQUIRE(all[ranks - 1] == ranks - 1);
    memset(all, -1, sizeof all);
    OK(unisono_gather(world, &mine, all, 1, sizeof mine, 0));
    REQUIRE(all[ranks - 1] == (rank == 0 ? ranks - 1 : -1));
    OK(unisono_scatter(world, all, &other, 1, sizeof mine, 0));
    REQUIRE(other == rank);
    int32_t to[most], from[most];
    for (int r = 0; r < ranks; ++r) to[r] = 10 * rank + r;
    OK(unisono_all_to_all(world, to, from, 1, sizeof mine));
    for (int r = 0; r < ranks; ++r) REQUIRE(from[r] == 10 * r + rank);
    if (ranks == 1) return;
    OK(unisono_exchange(world, &mine, 1, (rank + 1) % ranks, &other, 1, (rank + ranks - 1) % ranks, sizeof mine, 3));
    REQUIRE(other == (rank + ranks - 1) % ranks);
    if (rank == 0) OK(unisono_send(world, "ab", 2, 1, 1, 0));
    char text[2];
    if (rank == 1) OK(unisono_receive(world, text, 2, 1, 0, 0));
    REQUIRE(rank != 1 || memcmp(text, "ab", 2) == 0);
    unisono_world* group;
    OK(unisono_split(world, rank == 0 ? -1 : 0, -rank, &group));
    REQUIRE((group == NULL) == (rank == 0));
    if (group != NULL) {
        REQUIRE(unisono_size(group) == ranks - 1 && unisono_rank(group) == ranks - 1 - rank);
        OK(unisono_barrier(group));
    }
    unisono_leave(group);
}

/* Several calls in flight, which end in another order. */
static void in_flight(unisono_world* world) {
    unisono_request *sum = NULL, *gather = NULL, *going = NULL, *coming = NULL, *by = NULL;
    float x[2] = {(float)rank, 1};
    OK(unisono_all_reduce(unisono_start(world, &sum), x, x, 2, UNISONO_FLOAT32, UNISONO_SUM));
    REQUIRE(sum != NULL);
    int32_t all[2 * most];
    memset(all, -1, sizeof all);
    size_t counts[most], places[most];
    for (int r = 0; r < ranks; ++r) counts[r] = 1, places[r] = 2 * (size_t)r;
    OK(unisono_all_gather_v(unisono_start(world, &gather), &rank, all, counts, places, sizeof *all));
    int16_t small = 1;
    OK(unisono_all_reduce_by(unisono_start(world, &by), &small, &small, 1, sizeof small, add_numbers, NULL));
    memset(places, 77, sizeof places); /* they do not belong to the request */
    int32_t other = -1;
    if (ranks > 1) {
        OK(unisono_receive(unisono_start(world, &coming), &other, 1, sizeof other, (rank + ranks - 1) % ranks, 9));
        OK(unisono_send(unisono_start(world, &going), &rank, 1, sizeof rank, (rank + 1) % ranks, 9));
    }
    OK(unisono_barrier(world)); /* a call without start still waits, and moves the others */
    OK(unisono_wait(&going));
    OK(unisono_wait(&coming));
    REQUIRE(ranks == 1 || other == (rank + ranks - 1) % ranks);
    for (int done = 0; !done;) OK(unisono_test(&gather, &done));
    REQUIRE(gather == NULL);
    for (int r = 0; r < ranks; ++r) REQUIRE(all[2 * r] == r && all[2 * r + 1] == -1);
    OK(unisono_wait(&sum));
    REQUIRE(sum == NULL && x[0] == (float)(ranks * (ranks - 1) / 2) && x[1] == (float)ranks);
    OK(unisono_wait(&by));
    REQUIRE(small == ranks);
    int done = 0;
    OK(unisono_test(&sum, &done)); /* it has ended */
    REQUIRE(done == 1);

    /* A request is a handle of its group, too. */
    unisono_world* group = NULL;
    OK(unisono_split(world, 0, 0, &group));
    OK(unisono_barrier(unisono_start(group, &sum)));
    unisono_leave(group);
    OK(unisono_wait(&sum));

    /* What cannot be started, and then starts nothing. */
    REQUIRE(unisono_set_timeout(unisono_start(world, &sum), 5) == UNISONO_BAD_INPUT && sum == NULL);
    REQUIRE(unisono_split(unisono_start(world, &sum), 0, 0, &group) == UNISONO_BAD_INPUT && group == NULL);
    REQUIRE(unisono_broadcast(unisono_start(world, &sum), x, 1, 4, ranks) == UNISONO_BAD_INPUT && sum == NULL);
    REQUIRE(unisono_barrier(unisono_start(world, NULL)) == UNISONO_BAD_INPUT);
    REQUIRE(unisono_barrier(unisono_start(NULL, &sum)) == UNISONO_BAD_INPUT && sum == NULL);
    REQUIRE(unisono_test(&sum, NULL) == UNISONO_BAD_INPUT && unisono_wait(NULL) == UNISONO_BAD_INPUT);
    OK(unisono_barrier(unisono_start(world, &sum)));
    REQUIRE(unisono_test(&sum, NULL) == UNISONO_BAD_INPUT && sum != NULL); /* and nothing has changed */
    OK(unisono_wait(&sum));

    /* A handle is for one call, and other calls do not see it. */
    unisono_world* starter = unisono_start(world, &sum);
    x[0] = 1;
    OK(unisono_all_reduce(world, x, x, 1, UNISONO_FLOAT32, UNISONO_SUM));
    REQUIRE(sum == NULL && x[0] == (float)ranks && unisono_rank(starter) == rank);
    OK(unisono_barrier(starter));
    REQUIRE(sum != NULL && unisono_barrier(starter) == UNISONO_BAD_INPUT);
    OK(unisono_wait(&sum));
    OK(unisono_barrier(world));
}

/* A fork of a rank is no rank. */
static void forked(unisono_world* world) {
    const pid_t child = fork();
    if (child == 0) {
        const int refused = unisono_barrier(world) == UNISONO_BAD_INPUT && strstr(unisono_last_error(), "is a fork of process") != NULL;
        unisono_leave(world);
        _exit(refused ? 0 : 1);
    }
    int status = 0;
    REQUIRE(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    OK(unisono_barrier(world));
}

/* Rank 0 polls, and the others do not come before its timeout. */
static void poll_in_vain(unisono_world* world) {
    OK(unisono_set_timeout(world, rank == 0 ? 0.3 : 30));
    if (rank != 0) {
        sleep(2);
        REQUIRE(unisono_barrier(world) != UNISONO_OK);
        return;
    }
    unisono_request* request = NULL;
    OK(unisono_barrier(unisono_start(world, &request)));
    int done = 0, status = UNISONO_OK;
    while (status == UNISONO_OK && !done) status = unisono_test(&request, &done);
    REQUIRE(status == UNISONO_TIMEOUT && !done && request == NULL);
    printf("polled in vain\n");
}

/* Wrong arguments change nothing; the last error ends the world. */
static void errors(unisono_world* world) {
    float x = 1;
    REQUIRE(unisono_all_reduce(world, &x, &x, 1, (unisono_type)99, UNISONO_SUM) == UNISONO_BAD_INPUT);
    REQUIRE(strstr(unisono_last_error(), "found 99 as the type") != NULL);
    REQUIRE(unisono_all_reduce(world, &x, &x, 1, UNISONO_FLOAT32, (unisono_op)9) == UNISONO_BAD_INPUT);
    REQUIRE(unisono_all_reduce(world, &x, &x, 1, UNISONO_FLOAT32, UNISONO_OR) == UNISONO_BAD_INPUT);
    REQUIRE(strstr(unisono_last_error(), "found the operation or for float32; expected an integer type") != NULL);
    REQUIRE(unisono_all_reduce(NULL, &x, &x, 1, UNISONO_FLOAT32, UNISONO_SUM) == UNISONO_BAD_INPUT);
    REQUIRE(unisono_all_reduce_by(world, &x, &x, 1, 4, NULL, NULL) == UNISONO_BAD_INPUT);
    REQUIRE(unisono_all_reduce_by(world, &x, &x, 1, 16777217, add_numbers, NULL) == UNISONO_BAD_INPUT);
    REQUIRE(unisono_broadcast(world, &x, 1, 0, 0) == UNISONO_BAD_INPUT);
    REQUIRE(unisono_broadcast(world, &x, 1, 4, ranks) == UNISONO_BAD_INPUT);
    REQUIRE(unisono_all_gather_v(world, &x, &x, NULL, NULL, 4) == UNISONO_BAD_INPUT);
    REQUIRE(unisono_set_timeout(world, -1) == UNISONO_BAD_INPUT);
    const size_t huge = ((size_t)1 << 62) + 1; /* times 4, it is 4 */
    REQUIRE(unisono_all_reduce(world, &x, &x, huge, UNISONO_FLOAT32, UNISONO_SUM) == UNISONO_BAD_INPUT);
    REQUIRE(strstr(unisono_last_error(), "4611686018427387905 elements of 4 bytes are more than memory can hold") != NULL);
    REQUIRE(unisono_broadcast(world, &x, huge, 4, 0) == UNISONO_BAD_INPUT);
    REQUIRE(unisono_all_gather(world, &x, &x, huge, 4) == UNISONO_BAD_INPUT);
    REQUIRE(unisono_all_to_all(world, &x, &x, huge, 4) == UNISONO_BAD_INPUT);
    REQUIRE(unisono_all_reduce(world, NULL, &x, 1, UNISONO_FLOAT32, UNISONO_SUM) == UNISONO_BAD_INPUT);
    REQUIRE(strstr(unisono_last_error(), "the input is NULL; expected memory of 4 bytes") != NULL);
    REQUIRE(unisono_broadcast(world, NULL, 1, 4, 0) == UNISONO_BAD_INPUT);
    if (ranks > 1) {
        const int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
        REQUIRE(unisono_send(world, &x, huge, 4, next, 0) == UNISONO_BAD_INPUT);
        REQUIRE(unisono_exchange(world, &x, 1, next, NULL, 1, before, 4, 0) == UNISONO_BAD_INPUT); /* and sends nothing */
        REQUIRE(unisono_exchange(world, NULL, 1, next, &x, 1, before, 4, 0) == UNISONO_BAD_INPUT);
    }
    REQUIRE(unisono_exchange(world, &x, 1, rank, &x, 1, rank, 4, 0) == UNISONO_BAD_INPUT);
    REQUIRE(unisono_type_bytes(UNISONO_BFLOAT16) == 2 && unisono_type_bytes(UNISONO_UINT64) == 8 && unisono_type_bytes((unisono_type)-1) == 0);
    REQUIRE(unisono_rank(NULL) == -1 && unisono_size(NULL) == 0);
    OK(unisono_set_timeout(world, 20));
    unisono_world* group = NULL; /* in which the last rank has another number */
    OK(unisono_split(world, rank == 0 ? 0 : 1, 0, &group));
    int status = unisono_all_reduce(world, &x, &x, 1, UNISONO_FLOAT32, UNISONO_SUM);
    REQUIRE(status == UNISONO_OK || (status == UNISONO_ABORTED && rank != ranks - 1)); /* the last rank may be far ahead */
    if (ranks == 1) {
        unisono_leave(group);
        return;
    }
    if (rank == ranks - 1) {
        unisono_abort(group, "out of samples");
    } else {
        if (status == UNISONO_OK) status = unisono_barrier(world);
        REQUIRE(status == UNISONO_ABORTED);
        char expected[64];
        snprintf(expected, sizeof expected, "rank %d gave up: out of samples", ranks - 1);
        REQUIRE(strstr(unisono_last_error(), expected) != NULL);
        REQUIRE(unisono_last_error_rank() == ranks - 1);
    }
    unisono_leave(group);
}

/* A store whose values are files of a folder, as of a network's file system: a value may be there late, or be an old one. */
static int set_file(void* folder, const char* key, const char* value) {
    char path[512], made[512];
    snprintf(path, sizeof path, "%s/%s", (const char*)folder, key);
    snprintf(made, sizeof made, "%s/new %s", (const char*)folder, key);
    FILE* file = fopen(made, "w");
    if (file == NULL) return -1;
    const int written = fputs(value, file);
    return fclose(file) == 0 && written >= 0 ? rename(made, path) : -1;
}
static int get_file(void* folder, const char* key, char* value, double timeout_s) {
    char path[512];
    (void)timeout_s;
    snprintf(path, sizeof path, "%s/%s", (const char*)folder, key);
    FILE* file = fopen(path, "r");
    if (file == NULL) return UNISONO_STORE_EMPTY;
    value[fread(value, 1, UNISONO_STORE_BYTES - 1, file)] = '\0';
    return fclose(file) == 0 ? UNISONO_STORE_FOUND : UNISONO_STORE_FAILED;
}
static int never(void* asked, const char* key, char* value, double timeout_s) {
    REQUIRE(strlen(key) > 0 && value[0] == '\0' && timeout_s > 0);
    ++*(int*)asked;
    return UNISONO_STORE_EMPTY;
}
static int fails(void* context, const char* key, char* value, double timeout_s) {
    return (void)context, (void)key, (void)value, (void)timeout_s, UNISONO_STORE_FAILED;
}

/* Options of programs compiled with another c.h, in worlds of one. */
static void other_headers(const char* place) {
    unisono_world* world = NULL;
    struct { /* as of a later version, with one member more */
        unisono_options known;
        double more;
    } newer = {UNISONO_OPTIONS_INITIALIZER, 0};
    newer.known.size = sizeof newer;
    OK(unisono_join_at(&world, 0, 1, place, &newer.known));
    unisono_leave(world);
    newer.known.transport = "pigeons"; /* is read */
    REQUIRE(unisono_join_at(&world, 0, 1, place, &newer.known) == UNISONO_BAD_INPUT && world == NULL);
    REQUIRE(strstr(unisono_last_error(), "pigeons") != NULL);
    newer.more = 1;
    REQUIRE(unisono_join_at(&world, 0, 1, place, &newer.known) == UNISONO_BAD_INPUT && world == NULL);
    REQUIRE(strstr(unisono_last_error(), " of unisono_options is not 0, but this library has ") != NULL);

    unisono_options wrong = UNISONO_OPTIONS_INITIALIZER;
    const double time = 60; /* c.h had a time once, where the size is now */
    size_t sizes[] = {0, 1, sizeof wrong - 1, 4097, (size_t)-1, 0};
    memcpy(&sizes[5], &time, sizeof time);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
        wrong.size = sizes[i];
        REQUIRE(unisono_join_at(&world, 0, 1, place, &wrong) == UNISONO_BAD_INPUT && world == NULL);
        REQUIRE(strstr(unisono_last_error(), "unisono_options.size is ") != NULL);
    }
    wrong.size = sizeof wrong;
    wrong.reserved = 1;
    REQUIRE(unisono_join_at(&world, 0, 1, place, &wrong) == UNISONO_BAD_INPUT && world == NULL);
    REQUIRE(strstr(unisono_last_error(), "unisono_options.reserved is 1, expected 0") != NULL);
}

/* Joins that cannot succeed: on the last rank alone, without the others. */
static void wrong_joins(void) {
    unisono_world* world = NULL;
    const unisono_options brief = {.size = sizeof brief, .timeout_s = 0.3};
    int asked = 0;
    const unisono_store late = {sizeof late, set_file, never, &asked}, broken = {sizeof broken, set_file, fails, NULL},
                        none = {sizeof none, set_file, NULL, NULL}, unsized = {.set = set_file, .get = never};
    REQUIRE(unisono_join_by(&world, 1, 2, &late, &brief) == UNISONO_TIMEOUT && world == NULL && asked > 1);
    REQUIRE(strstr(unisono_last_error(), "the store has no value of the key 'unisono', which rank 0 sets") != NULL);
    REQUIRE(unisono_join_by(&world, 1, 2, &broken, &brief) == UNISONO_REFUSED);
    REQUIRE(strstr(unisono_last_error(), "the store's get of the key 'unisono' returned -1") != NULL);
    REQUIRE(unisono_join_by(&world, 1, 2, &none, &brief) == UNISONO_BAD_INPUT);
    REQUIRE(unisono_join_by(&world, 1, 2, NULL, &brief) == UNISONO_BAD_INPUT);
    REQUIRE(unisono_join_by(&world, 1, 2, &unsized, &brief) == UNISONO_BAD_INPUT);
    REQUIRE(strstr(unisono_last_error(), "unisono_store.size is 0, expected ") != NULL);
    REQUIRE(unisono_join_by(&world, 2, 2, &late, &brief) == UNISONO_BAD_INPUT);
    REQUIRE(unisono_join_at(&world, 1, 2, "nowhere", &brief) == UNISONO_BAD_INPUT);
    REQUIRE(unisono_join_at(&world, 1, 2, NULL, &brief) == UNISONO_BAD_INPUT);
    REQUIRE(unisono_join_at(&world, 1, 2, "10.0.0.1:4000", &brief) == UNISONO_REFUSED); /* another host, and no secret */
    REQUIRE(unisono_join_at(NULL, 0, 1, "localhost:4000", NULL) == UNISONO_BAD_INPUT);
}

/* program [TRANSPORT] | program TRANSPORT poll | program TRANSPORT at|by RANK RANKS PLACE */
int main(int argc, char** argv) {
    const unisono_options options = {.size = sizeof options, .timeout_s = 60, .transport = argc > 1 ? argv[1] : NULL};
    const unisono_options wrong = {.size = sizeof wrong, .transport = "pigeons"};
    unisono_world* world = NULL;
    REQUIRE(unisono_join(&world, &wrong) == UNISONO_BAD_INPUT && world == NULL);
    REQUIRE(unisono_join(NULL, NULL) == UNISONO_BAD_INPUT);
    if (argc == 6) {
        unisono_store store = UNISONO_STORE_INITIALIZER;
        store.set = set_file, store.get = get_file, store.context = argv[5];
        rank = atoi(argv[3]);
        ranks = atoi(argv[4]);
        if (strcmp(argv[2], "at") == 0) OK(unisono_join_at(&world, rank, ranks, argv[5], &options));
        else OK(unisono_join_by(&world, rank, ranks, &store, &options));
        REQUIRE(unisono_rank(world) == rank && unisono_size(world) == ranks);
        wrong_joins();
        if (strcmp(argv[2], "at") == 0) other_headers(argv[5]);
    } else {
        OK(unisono_join(&world, &options));
    }
    rank = unisono_rank(world);
    ranks = unisono_size(world);
    REQUIRE(ranks <= most);
    if (argc == 3) {
        poll_in_vain(world);
        unisono_leave(world);
        return 0;
    }
    forked(world);
    reductions(world);
    integers(world);
    in_flight(world);
    large_elements(world);
    blocks(world);
    moves(world);
    errors(world);
    if (rank == 0) printf("%d ranks: all calls\n", ranks);
    unisono_leave(world);
    return 0;
}

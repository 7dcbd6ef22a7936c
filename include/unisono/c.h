#ifndef UNISONO_C_H
#define UNISONO_C_H

/**
 * \file
 * Collectives for C programs and for other languages (docs/c.md). C11; nothing of C++ crosses this edge.
 *
 *     unisono_world* world;
 *     if (unisono_join(&world, NULL) != UNISONO_OK) return fprintf(stderr, "%s\n", unisono_last_error()), 1;
 *     unisono_all_reduce(world, gradients, gradients, count, UNISONO_FLOAT32, UNISONO_SUM);
 *     unisono_leave(world);
 *
 * The definitions are in the library unisono::c (CMake), or in one C++ file of the program that has `#include <unisono/c.hpp>`.
 *
 * Every call that returns an int returns UNISONO_OK or the code of an error; unisono_last_error() has its text. All calls wait, unless
 * they are given unisono_start's handle. Counts and displacements are in elements. One thread at a time uses a world, its groups and its
 * requests; in a fork of the process that has joined, each call is UNISONO_BAD_INPUT. Which memory may overlap, and which bits a sum has, is as for the C++ collectives (docs/collectives.md).
 */

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Ranks that act together: the world, or a group that unisono_split has made. */
typedef struct unisono_world unisono_world;

/** A call that was started, until unisono_test or unisono_wait has ended it. */
typedef struct unisono_request unisono_request;

/** What a call returns. */
enum unisono_status {
    UNISONO_OK = 0,
    UNISONO_TIMEOUT,    /**< a deadline passed */
    UNISONO_PEER_LOST,  /**< a rank died or left */
    UNISONO_MISMATCH,   /**< ranks disagree: in operation, type, count or root */
    UNISONO_REFUSED,    /**< a capability or a resource is missing */
    UNISONO_ABORTED,    /**< another rank gave up */
    UNISONO_BAD_INPUT,  /**< an argument is wrong; nothing has changed */
    UNISONO_NOT_FINITE  /**< reserved: no call of this file returns it */
};

/* For C++ any int is a value of these types, so that a wrong one is an error and not undefined behaviour. */
#ifdef __cplusplus
#define UNISONO_INT_ENUM : int
#else
#define UNISONO_INT_ENUM
#endif

typedef enum unisono_type UNISONO_INT_ENUM {
    UNISONO_FLOAT32 = 0,
    UNISONO_FLOAT64,
    UNISONO_BFLOAT16,
    UNISONO_FLOAT16,
    UNISONO_INT32,
    UNISONO_INT64,
    UNISONO_UINT8,
    UNISONO_UINT32,
    UNISONO_UINT64,
    UNISONO_INT8,
    UNISONO_INT16,
    UNISONO_UINT16
} unisono_type;

/** AND, OR and XOR are for integers, bit by bit. */
typedef enum unisono_op UNISONO_INT_ENUM {
    UNISONO_SUM = 0,
    UNISONO_PRODUCT,
    UNISONO_MIN,
    UNISONO_MAX,
    UNISONO_AND,
    UNISONO_OR,
    UNISONO_XOR
} unisono_op;

#undef UNISONO_INT_ENUM

/** in_out[i] = in[i] op in_out[i] for `count` elements: associative, commutative, and the same on every rank. */
typedef void (*unisono_function)(const void* in, void* in_out, size_t count, void* context);

/**
 * How to join. Later versions add members at the end; the size says which ones a program knows.
 *
 *     unisono_options options = UNISONO_OPTIONS_INITIALIZER;
 *     options.timeout_s = 60;
 */
typedef struct unisono_options {
    size_t size;           /**< sizeof(unisono_options) where the program is compiled; zeros in all others are the defaults */
    double timeout_s;      /**< of every call, and of the beginning and the end; 0: ten minutes, and five for the beginning */
    const char* transport; /**< "auto" (also NULL): shared memory on one host, sockets between hosts; "shared_memory", "hosts", "tcp" */
    int trusted_network;   /**< not 0: ranks on several hosts need no secret (docs/security.md) */
    int reserved;          /**< 0 */
} unisono_options;

#define UNISONO_OPTIONS_INITIALIZER {sizeof(unisono_options), 0, NULL, 0, 0}

/**
 * The world that this process belongs to, as its launcher's environment says (unisono-run, mpirun, srun, torchrun; docs/launching.md), and a
 * world of one where no launcher speaks. `options` may be NULL. Collective. On an error *world is NULL.
 */
int unisono_join(unisono_world** world, const unisono_options* options);

/**
 * The same for a program that starts its processes itself: this process is rank `rank` of `size`, and rank 0 listens at `address`,
 * "host:port". Ranks on several hosts need a secret: UNISONO_TOKEN in the environment. At an address of the loopback (127.0.0.1, localhost)
 * the ranks meet by a file of this user instead, so all of them give the address in the same words.
 */
int unisono_join_at(unisono_world** world, int rank, int size, const char* address, const unisono_options* options);

/** What a store's `get` returns: it failed, has written the value, or the key has no value yet. */
enum unisono_store_status { UNISONO_STORE_FAILED = -1, UNISONO_STORE_FOUND = 0, UNISONO_STORE_EMPTY = 1 };

enum { UNISONO_STORE_BYTES = 4096 }; /**< room for a value and the zero behind it */

/**
 * A key-value store that all ranks of one job see, and no other job. Keys and values are texts that end in a zero; values have less than
 * UNISONO_STORE_BYTES bytes. Rank 0 sets a key, the others get it. They may get it again, until the deadline: the value may be that of an
 * earlier job, or not there yet. So `get` answers each time, and may answer with an older value.
 *
 *     unisono_store store = UNISONO_STORE_INITIALIZER;
 *     store.set = set, store.get = get;
 */
typedef struct unisono_store {
    size_t size; /**< sizeof(unisono_store) where the program is compiled */
    /** Replaces the value of `key`. Returns 0, or anything else if it failed. */
    int (*set)(void* context, const char* key, const char* value);
    /**
     * Writes the value of `key`, and a zero, to `value`, which has UNISONO_STORE_BYTES bytes. It may wait for a value, at most for
     * `timeout_s` seconds. Returns a unisono_store_status.
     */
    int (*get)(void* context, const char* key, char* value, double timeout_s);
    void* context; /**< passed on unchanged */
} unisono_store;

#define UNISONO_STORE_INITIALIZER {sizeof(unisono_store), NULL, NULL, NULL}

/** The same by a store instead of an address. The ranks use it until the call returns. */
int unisono_join_by(unisono_world** world, int rank, int size, const unisono_store* store, const unisono_options* options);

/** Ends the handle, and with the last handle and request of a world says goodbye to the others. NULL is allowed. */
void unisono_leave(unisono_world* world);

int unisono_rank(const unisono_world* world); /**< from 0 */
int unisono_size(const unisono_world* world); /**< the number of ranks */

/** New groups, one for each colour, with ranks in the order of (key, rank). A colour is at least 0; with -1, *group is NULL. Collective. */
int unisono_split(unisono_world* world, int colour, int key, unisono_world** group);

/** Of every later call on this world or group. Seconds, more than 0. */
int unisono_set_timeout(unisono_world* world, double timeout_s);

/** Ends the world for all ranks: their calls return UNISONO_ABORTED with this rank and text. `why` may be NULL. */
void unisono_abort(unisono_world* world, const char* why);

/** The text of this thread's last error, "" before the first. It stays until the next error of this thread. */
const char* unisono_last_error(void);
/** The rank that is to blame for it, and the other rank concerned; -1: none. */
int unisono_last_error_rank(void);
int unisono_last_error_peer(void);

/** The bytes of an element; 0 for what is no type. */
size_t unisono_type_bytes(unisono_type type);

/* --- reductions: `in` may be `out` ------------------------------------------------------------------------------------------------- */

int unisono_all_reduce(unisono_world* world, const void* in, void* out, size_t count, unisono_type type, unisono_op op);
/** `out` matters at the root. */
int unisono_reduce(unisono_world* world, const void* in, void* out, size_t count, unisono_type type, unisono_op op, int root);
/** `in` has `count` elements for each rank; `out` has this rank's. */
int unisono_reduce_scatter(unisono_world* world, const void* in, void* out, size_t count, unisono_type type, unisono_op op);
/** counts[r] elements for rank r, from displacements[r] on; NULL: without gaps. The same counts on every rank. */
int unisono_reduce_scatter_v(unisono_world* world, const void* in, const size_t* counts, const size_t* displacements, void* out,
                             unisono_type type, unisono_op op);

/* The same by a function, on elements of 1 byte to 16 MiB. */
int unisono_all_reduce_by(unisono_world* world, const void* in, void* out, size_t count, size_t element_bytes,
                          unisono_function function, void* context);
int unisono_reduce_by(unisono_world* world, const void* in, void* out, size_t count, size_t element_bytes,
                      unisono_function function, void* context, int root);
int unisono_reduce_scatter_by(unisono_world* world, const void* in, void* out, size_t count, size_t element_bytes,
                              unisono_function function, void* context);
int unisono_reduce_scatter_v_by(unisono_world* world, const void* in, const size_t* counts, const size_t* displacements, void* out,
                                size_t element_bytes, unisono_function function, void* context);

/* --- collectives that move elements of any size ---------------------------------------------------------------------------------------- */

int unisono_broadcast(unisono_world* world, void* data, size_t count, size_t element_bytes, int root);
/** `in` has `count` elements, `out` has those of all ranks. */
int unisono_all_gather(unisono_world* world, const void* in, void* out, size_t count, size_t element_bytes);
/** `out` matters at the root. */
int unisono_gather(unisono_world* world, const void* in, void* out, size_t count, size_t element_bytes, int root);
/** `in` matters at the root. */
int unisono_scatter(unisono_world* world, const void* in, void* out, size_t count, size_t element_bytes, int root);
/** `count` elements from each rank to each. */
int unisono_all_to_all(unisono_world* world, const void* in, void* out, size_t count, size_t element_bytes);
int unisono_barrier(unisono_world* world);

/* With counts, the same on every rank, and displacements or NULL, as for unisono_reduce_scatter_v. */
int unisono_all_gather_v(unisono_world* world, const void* in, void* out, const size_t* counts, const size_t* displacements,
                         size_t element_bytes);
int unisono_gather_v(unisono_world* world, const void* in, void* out, const size_t* counts, const size_t* displacements,
                     size_t element_bytes, int root);
int unisono_scatter_v(unisono_world* world, const void* in, const size_t* counts, const size_t* displacements, void* out,
                      size_t element_bytes, int root);
/** send_counts[j] elements go to rank j, receive_counts[i] come from rank i. */
int unisono_all_to_all_v(unisono_world* world, const void* in, const size_t* send_counts, const size_t* send_displacements, void* out,
                         const size_t* receive_counts, const size_t* receive_displacements, size_t element_bytes);

/* --- two ranks -------------------------------------------------------------------------------------------------------------------------- */

/** Tags are at least 0. A message has as many bytes as its receiver expects. */
int unisono_send(unisono_world* world, const void* data, size_t count, size_t element_bytes, int peer, int tag);
int unisono_receive(unisono_world* world, void* data, size_t count, size_t element_bytes, int peer, int tag);
/** Both at once, so that two ranks that call each other do not wait for ever. */
int unisono_exchange(unisono_world* world, const void* sent, size_t sent_count, int to, void* received, size_t received_count, int from,
                     size_t element_bytes, int tag);

/* --- calls in flight --------------------------------------------------------------------------------------------------------------------- */

/**
 * For one call, which begins and does not wait: a collective, a send or a receive.
 *
 *     unisono_request* sum;
 *     unisono_all_reduce(unisono_start(world, &sum), gradients, gradients, count, UNISONO_FLOAT32, UNISONO_SUM);
 *     ... compute ...
 *     unisono_wait(&sum);
 *
 * Calls with `world` itself still wait. The memory belongs to the request until that has ended; counts and displacements do not. All ranks of a group start their collectives in
 * the same order, and may end them in any order. If the call returns an error, *request is NULL, and nothing is in flight.
 */
unisono_world* unisono_start(unisono_world* world, unisono_request** request);
/**
 * Advances all that is in flight, and never waits. If the request has ended, *done is 1, and *request NULL. Once the timeout has passed since
 * the start, the world ends, as in a call that waits, with UNISONO_TIMEOUT. On an error *done is 0, and *request NULL, except for
 * UNISONO_BAD_INPUT.
 */
int unisono_test(unisono_request** request, int* done);
/** Waits until the request has ended; *request is NULL afterwards, also on an error. A NULL in *request counts as ended. */
int unisono_wait(unisono_request** request);

#ifdef __cplusplus
}
#endif
#endif

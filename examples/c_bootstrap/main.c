/* A program that starts its processes itself: `c_bootstrap RANK SIZE SOCKET`, once for each rank. The ranks meet over the program's own
 * sockets, which then carry rank 0's address to the others: they are the store of unisono_join_by. Everything else goes over Unisono. */
#include <unisono/c.h>

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h> /* unlink */

static int rank, size, peers[64]; /* on rank 0 connections to all others, on each of them one to rank 0 */

static int set(void* context, const char* key, const char* value) {
    for (int r = 1; r < size; ++r)
        if (send(peers[r], value, strlen(value) + 1, MSG_NOSIGNAL) < 0) return -1;
    return (void)context, (void)key, 0;
}

static int get(void* context, const char* key, char* value, double timeout_s) { /* may be asked again */
    static char known[UNISONO_STORE_BYTES];
    struct pollfd answer = {.fd = peers[0], .events = POLLIN};
    if (known[0] == '\0' && poll(&answer, 1, (int)(1000 * timeout_s)) == 0) return UNISONO_STORE_EMPTY;
    if (known[0] == '\0' && recv(peers[0], known, sizeof known, 0) <= 0) return UNISONO_STORE_FAILED;
    return (void)context, (void)key, strcpy(value, known), UNISONO_STORE_FOUND;
}

int main(int argc, char** argv) {
    if (argc != 4) return fprintf(stderr, "usage: c_bootstrap RANK SIZE SOCKET\n"), 2;
    rank = atoi(argv[1]), size = atoi(argv[2]);
    struct sockaddr_un place = {.sun_family = AF_UNIX};
    strncpy(place.sun_path, argv[3], sizeof place.sun_path - 1);
    const int own = socket(AF_UNIX, SOCK_SEQPACKET, 0); /* keeps the bounds of messages */
    if (rank == 0 && (bind(own, (void*)&place, sizeof place) != 0 || listen(own, 64) != 0)) return perror(argv[3]), 1;
    for (int r = 1; rank == 0 && r < size; ++r) peers[r] = accept(own, NULL, NULL);
    for (peers[0] = own; rank != 0 && connect(own, (void*)&place, sizeof place) != 0;) poll(NULL, 0, 10);

    unisono_world* world;
    const unisono_store store = {.size = sizeof store, .set = set, .get = get};
    short sum = (short)(rank + 1);
    if (unisono_join_by(&world, rank, size, &store, NULL) != UNISONO_OK ||
        unisono_all_reduce(world, &sum, &sum, 1, UNISONO_INT16, UNISONO_SUM) != UNISONO_OK)
        return fprintf(stderr, "%s\n", unisono_last_error()), 1;
    if (rank == 0) printf("%d ranks, sum %d\n", size, sum), unlink(argv[3]);
    unisono_leave(world);
    return 0;
}

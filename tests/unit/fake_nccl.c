/* A pretended libnccl: ranks are threads of one process, memory is the host's, and work is done when it is called.
 *
 *   FAKE_NCCL_VERSION    the version that it tells
 *   fake_nccl_break      an error of the work of a communicator, as ncclCommGetAsyncError tells it
 *   fake_nccl_waiting    whether somebody waits in a receive of a communicator
 *   fake_nccl_count      how many communicators there are
 *
 * A receive waits, in C, until somebody sends or the communicator is aborted; so does the start of a communicator, for all its ranks.
 */
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

typedef struct { char internal[128]; } unique_id;
enum { MOST = 64, RANKS = 8 };
struct message { void *bytes; size_t size; struct message *next; };
struct world { char id[128]; int size, arrived; struct message *boxes[RANKS][RANKS]; };
struct communicator { struct world *world; int rank, error, aborted, inside; };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct world worlds[MOST];
static int world_count, communicator_count, id_count;
static const char *last_error = "";
static const size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};

static int refuse(int status, const char *why) { last_error = why; return status; }

int ncclGetVersion(int *version) {
    const char *text = getenv("FAKE_NCCL_VERSION");
    *version = text ? atoi(text) : 22705;
    return 0;
}
const char *ncclGetLastError(void *communicator) { (void)communicator; return last_error; }
int fake_nccl_count(void) { return communicator_count; }
int fake_nccl_waiting(struct communicator *c) { return *(volatile int *)&c->inside; }
void fake_nccl_break(struct communicator *c, int status) { c->error = status; }

int ncclGetUniqueId(unique_id *id) {
    memset(id, 0, sizeof *id);
    id->internal[1] = (char)++id_count; /* with a zero before it: an id is no text */
    return 0;
}

int ncclCommInitRank(struct communicator **made, int size, unique_id id, int rank) {
    if (rank < 0 || rank >= size || size > RANKS) return refuse(4, "Invalid rank requested");
    pthread_mutex_lock(&lock);
    int place = 0;
    while (place < world_count && memcmp(worlds[place].id, id.internal, sizeof id.internal)) place++;
    struct world *world = &worlds[place];
    if (place == world_count) {
        world_count++;
        memcpy(world->id, id.internal, sizeof id.internal);
        world->size = size;
    }
    world->arrived++;
    pthread_cond_broadcast(&changed);
    while (world->arrived < size) pthread_cond_wait(&changed, &lock);
    communicator_count++;
    struct communicator *c = calloc(1, sizeof *c);
    c->world = world;
    c->rank = rank;
    *made = c;
    pthread_mutex_unlock(&lock);
    return 0;
}

int ncclCommAbort(struct communicator *c) {
    pthread_mutex_lock(&lock);
    c->aborted = 1;
    pthread_cond_broadcast(&changed);
    while (c->inside) pthread_cond_wait(&changed, &lock);
    communicator_count--;
    pthread_mutex_unlock(&lock);
    free(c);
    return 0;
}

int ncclCommGetAsyncError(struct communicator *c, int *status) { *status = c->error; return 0; }

static int put(struct communicator *c, const void *from, size_t size, int peer) {
    struct message *message = malloc(sizeof *message), **end;
    message->bytes = malloc(size);
    message->size = size;
    message->next = NULL;
    memcpy(message->bytes, from, size);
    pthread_mutex_lock(&lock);
    for (end = &c->world->boxes[c->rank][peer]; *end; end = &(*end)->next) {}
    *end = message;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return 0;
}

static int take(struct communicator *c, void *into, size_t size, int peer) {
    struct message **box = &c->world->boxes[peer][c->rank], *message;
    pthread_mutex_lock(&lock);
    c->inside++;
    while (!*box && !c->aborted) pthread_cond_wait(&changed, &lock);
    c->inside--;
    message = c->aborted ? NULL : *box;
    if (message) *box = message->next;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    if (!message) return 3;
    memcpy(into, message->bytes, size < message->size ? size : message->size);
    free(message->bytes);
    free(message);
    return 0;
}

static int checked(struct communicator *c, int type, int peer) {
    if (type < 0 || type > 11) return refuse(4, "Invalid datatype");
    return peer < 0 || peer >= c->world->size ? refuse(4, "Invalid peer") : 0;
}

int ncclSend(const void *from, size_t count, int type, int peer, struct communicator *c, void *stream) {
    (void)stream;
    int status = checked(c, type, peer);
    return status ? status : put(c, from, count * sizes[type], peer);
}

int ncclRecv(void *into, size_t count, int type, int peer, struct communicator *c, void *stream) {
    (void)stream;
    int status = checked(c, type, peer);
    return status ? status : take(c, into, count * sizes[type], peer);
}

/* Everybody's bytes, by rank. */
static char *gathered(struct communicator *c, const void *from, size_t size) {
    int each;
    char *all = malloc(size * (size_t)c->world->size);
    for (each = 0; each < c->world->size; each++) put(c, from, size, each);
    for (each = 0; each < c->world->size; each++) take(c, all + size * (size_t)each, size, each);
    return all;
}

/* Sums of float32 alone: the arguments are the point here. */
static int summed(struct communicator *c, const void *from, void *into, size_t count, size_t skip, size_t kept, int type, int op) {
    size_t place;
    int each;
    if (type != 7 || op != 0) return refuse(4, "this one adds float32 only");
    float *all = (float *)gathered(c, from, 4 * count), *out = into;
    for (place = 0; into && place < kept; place++) {
        out[place] = 0;
        for (each = 0; each < c->world->size; each++) out[place] += all[count * (size_t)each + skip + place];
    }
    free(all);
    return 0;
}

int ncclAllReduce(const void *from, void *into, size_t count, int type, int op, struct communicator *c, void *stream) {
    (void)stream;
    return summed(c, from, into, count, 0, count, type, op);
}

int ncclReduce(const void *from, void *into, size_t count, int type, int op, int root, struct communicator *c, void *stream) {
    (void)stream;
    return summed(c, from, c->rank == root ? into : NULL, count, 0, count, type, op);
}

int ncclReduceScatter(const void *from, void *into, size_t count, int type, int op, struct communicator *c, void *stream) {
    (void)stream;
    return summed(c, from, into, count * (size_t)c->world->size, count * (size_t)c->rank, count, type, op);
}

int ncclAllGather(const void *from, void *into, size_t count, int type, struct communicator *c, void *stream) {
    (void)stream;
    char *all = gathered(c, from, count * sizes[type]);
    memcpy(into, all, count * sizes[type] * (size_t)c->world->size);
    free(all);
    return 0;
}

int ncclBroadcast(const void *from, void *into, size_t count, int type, int root, struct communicator *c, void *stream) {
    (void)stream;
    size_t size = count * sizes[type];
    char *all = gathered(c, c->rank == root ? from : into, size);
    memcpy(into, all + size * (size_t)root, size);
    free(all);
    return 0;
}

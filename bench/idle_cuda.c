/* A libcuda that does nothing, at once: an edge on it takes what its own code takes.
 *
 *   GPU                  (macro) the number of the one GPU that this library shows; two libraries are two processes, as a driver sees them
 *   calls_NAME           how often a thread has called the function NAME
 *   idle_cuda_is_late    whether words are set by idle_cuda_finish alone, as on a device that is behind
 *
 * Device memory is memory of the host, and its handle is its address: all processes are one. Nothing is copied.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_WORDS = 4096 };
struct handle { char bytes[64]; };
struct uuid { unsigned char bytes[16]; };
struct word { volatile uint64_t *address; uint64_t number; };

static struct word words[MOST_WORDS];
static int word_count;
static __thread void *current;
int idle_cuda_is_late;

void idle_cuda_finish(void) {
    for (int i = 0; i < word_count; i++) *words[i].address = words[i].number;
    word_count = 0;
}

static void set_word(uint64_t address, uint64_t number) {
    if (word_count == MOST_WORDS) idle_cuda_finish();
    words[word_count++] = (struct word){(volatile uint64_t *)address, number};
    if (!idle_cuda_is_late) idle_cuda_finish();
}

#define CALL(name, parameters, ...) __thread long calls_##name; int name parameters { calls_##name++; __VA_ARGS__; return 0; }

CALL(cuInit, (unsigned flags), )
CALL(cuGetErrorName, (int status, const char **text), *text = "CUDA_ERROR_IDLE")
CALL(cuGetErrorString, (int status, const char **text), *text = "no error")
CALL(cuDeviceGetCount, (int *count), *count = 1)
CALL(cuDeviceGet, (int *device, int number), *device = number)
CALL(cuDeviceGetAttribute, (int *value, int attribute, int device), *value = 1)
CALL(cuDeviceGetName, (char *name, int size, int device), strncpy(name, "idle", size))
CALL(cuDeviceGetUuid, (struct uuid *uuid, int device), memset(uuid, GPU + 1, sizeof *uuid))
CALL(cuDeviceGetUuid_v2, (struct uuid *uuid, int device), memset(uuid, GPU + 1, sizeof *uuid))
CALL(cuDeviceCanAccessPeer, (int *can, int device, int peer), *can = 1)
CALL(cuDevicePrimaryCtxRetain, (void **context, int device), *context = (void *)1)
CALL(cuDevicePrimaryCtxRelease_v2, (int device), )
CALL(cuCtxGetCurrent, (void **context), *context = current)
CALL(cuCtxSetCurrent, (void *context), current = context)
CALL(cuThreadExchangeStreamCaptureMode, (int *mode), )

CALL(cuMemGetInfo_v2, (size_t *left, size_t *total), *left = *total = (size_t)1 << 36)
CALL(cuMemAlloc_v2, (uint64_t *address, size_t size), *address = (uint64_t)aligned_alloc(4096, size))
CALL(cuMemFree_v2, (uint64_t address), free((void *)address))
CALL(cuIpcGetMemHandle, (struct handle *handle, uint64_t address), *handle = (struct handle){{0}}; memcpy(handle, &address, sizeof address))
CALL(cuIpcOpenMemHandle_v2, (uint64_t *address, struct handle handle, unsigned flags), memcpy(address, &handle, sizeof *address))
CALL(cuIpcCloseMemHandle, (uint64_t address), )
CALL(cuMemHostRegister_v2, (void *address, size_t size, unsigned flags), )
CALL(cuMemHostUnregister, (void *address), )
CALL(cuMemcpyAsync, (uint64_t target, uint64_t source, size_t size, void *stream), )

CALL(cuStreamCreate, (void **stream, unsigned flags), static uintptr_t last = 0x1000; *stream = (void *)++last)
CALL(cuStreamDestroy_v2, (void *stream), )
CALL(cuStreamSynchronize, (void *stream), )
CALL(cuStreamQuery, (void *stream), )
CALL(cuStreamIsCapturing, (void *stream, int *status), *status = 0)
CALL(cuStreamGetId, (void *stream, unsigned long long *number), *number = (uintptr_t)stream)
CALL(cuStreamWriteValue64_v2, (void *stream, uint64_t address, uint64_t number, unsigned flags), set_word(address, number))
CALL(cuStreamWaitValue64_v2, (void *stream, uint64_t address, uint64_t number, unsigned flags), )
CALL(cuEventCreate, (void **event, unsigned flags), *event = (void *)1)
CALL(cuEventRecord, (void *event, void *stream), )
CALL(cuEventElapsedTime, (float *milliseconds, void *first, void *last), *milliseconds = 0)
CALL(cuEventDestroy_v2, (void *event), )

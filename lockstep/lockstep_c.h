// Lockstep for C, and for every language that can call C: groups of processes ("ranks") that reduce
// and exchange arrays together. docs/collectives.md explains the operations; this is their C form.
//
// Link liblockstep (`pkg-config --cflags --libs lockstep`; CMake: Lockstep::c) or load it with
// dlopen. A program:
//
//   lockstep_group group;
//   float values[4] = {1, 2, 3, 4};
//   lockstep_tensor tensor = lockstep_dense(values, 4, LOCKSTEP_F32);
//   if (lockstep_init(&group) != LOCKSTEP_OK) { fputs(lockstep_last_error(), stderr); exit(1); }
//   lockstep_all_reduce(group, &tensor, NULL, LOCKSTEP_SUM, NULL);
//   lockstep_group_free(group);
//
// Status: functions return LOCKSTEP_OK or why they failed; lockstep_last_error() has the words. A
// NULL where something is needed, a handle that was freed or is of another kind, and numbers out of
// range are LOCKSTEP_INVALID_ARGUMENT. Results are written only on success.
//
// Errors of a group: what is refused on this rank alone, before anything moves, leaves the group
// usable. Every other error (a lost peer, a timeout, ranks that do not agree) breaks it: later
// calls fail at once with the first cause.
//
// Handles are numbers that are never used again. A handle may be freed while another thread is in a
// call with it; the call ends as if it had not been.
//
// Threads: one thread at a time calls a group's operations; work, poll and last_error from any.
//
// Stability: within one LOCKSTEP_C_API_VERSION nothing here changes its meaning or its layout; what
// is added has a new name.
#ifndef LOCKSTEP_LOCKSTEP_C_H_
#define LOCKSTEP_LOCKSTEP_C_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LOCKSTEP_C_API_VERSION 1

// What lockstep_c_api_version() says is what the loaded library has; version() is the release.
int lockstep_c_api_version(void);
const char* lockstep_version(void);

// Status. The numbers are those of lockstep::Code.
enum {
  LOCKSTEP_OK = 0,
  LOCKSTEP_INVALID_ARGUMENT = 1,    // asked for something that cannot be
  LOCKSTEP_UNSUPPORTED = 2,         // legal, but this build or this group cannot serve it
  LOCKSTEP_TIMEOUT = 3,             // the message names who was missing
  LOCKSTEP_PEER_LOST = 4,           // a rank died or its link broke
  LOCKSTEP_GENERATION_CHANGED = 5,  // the group's membership is not the one of this call any more
  LOCKSTEP_CANCELLED = 6,           // the user ended it
  LOCKSTEP_CORRUPT = 7,             // bytes from outside do not mean what they should
  LOCKSTEP_UNAUTHENTICATED = 8,     // the other end could not prove that it belongs to this job
  LOCKSTEP_IO = 9                   // a file, a system call or an allocation failed
};
// "peer_lost"; "unknown" for a number that is no status.
const char* lockstep_status_name(int status);
// Why the last call that failed on this thread failed, in words; "" when none has. Valid until the
// next call that fails on this thread.
const char* lockstep_last_error(void);

// Handles. LOCKSTEP_NONE is none; freeing it does nothing.
typedef uint64_t lockstep_group;
typedef uint64_t lockstep_work;
typedef uint64_t lockstep_memory;
#define LOCKSTEP_NONE ((uint64_t)0)

// Element types.
enum {
  LOCKSTEP_BOOL = 0,
  LOCKSTEP_U8 = 1,
  LOCKSTEP_I8 = 2,
  LOCKSTEP_I32 = 3,
  LOCKSTEP_I64 = 4,
  LOCKSTEP_F16 = 5,
  LOCKSTEP_BF16 = 6,
  LOCKSTEP_F32 = 7,
  LOCKSTEP_F64 = 8
};
// Reductions.
enum {
  LOCKSTEP_SUM = 0,
  LOCKSTEP_MEAN = 1,
  LOCKSTEP_MIN = 2,
  LOCKSTEP_MAX = 3,
  LOCKSTEP_PRODUCT = 4,
  LOCKSTEP_BAND = 5,
  LOCKSTEP_BOR = 6,
  LOCKSTEP_BXOR = 7
};

// `count` elements at `data`. It owns nothing. sizes and strides are read while a call is made; the
// data until the call has returned, or the work it gave is done.
typedef struct lockstep_tensor {
  void* data;
  int64_t count;
  int32_t dtype;
  int32_t dimensions;      // 0: one element after the other
  const int64_t* sizes;    // of each dimension; together they make count
  const int64_t* strides;  // in elements
  int32_t is_complex;      // not 0: pairs of elements are complex numbers; count counts their
                           // parts, sizes and strides the numbers
  int32_t reserved;        // 0
} lockstep_tensor;

static inline lockstep_tensor lockstep_dense(void* data, int64_t count, int32_t dtype) {
  lockstep_tensor tensor = {0, 0, 0, 0, 0, 0, 0, 0};
  tensor.data = data;
  tensor.count = count;
  tensor.dtype = dtype;
  return tensor;
}

// Joins the job that the environment describes (`lockstep run` and torchrun set it; see
// docs/settings.md): blocks until all ranks have joined, or fails with the missing ones named. With
// nothing set: a group of one.
int lockstep_init(lockstep_group* group);
// The same from "NAME=VALUE" texts with the names of docs/settings.md, NULL after the last; the
// environment is not looked at. A name that is no setting, or means nothing beside the others, is
// refused.
int lockstep_init_with(const char* const* settings, lockstep_group* group);
// Leaves in good order. Work of the group that is not done fails with LOCKSTEP_CANCELLED. A process
// that ends without it is a lost peer to the others.
int lockstep_group_free(lockstep_group group);

// -1 if there is no such group. local: among the ranks of the group that are on this host.
int lockstep_rank(lockstep_group group);
int lockstep_size(lockstep_group group);
int lockstep_local_rank(lockstep_group group);
int lockstep_local_size(lockstep_group group);
// "shared memory", "tcp", …; valid as long as the group. NULL if there is no such group.
const char* lockstep_transport_name(lockstep_group group);
// Payload bytes of all reductions so far on this rank; -1 if there is no such group.
int64_t lockstep_bytes_reduced(lockstep_group group);

// Collectives. Every rank of the group makes the same calls in the same order. `work` NULL: the
// call returns when the operation is complete on this rank. Else it returns at once, and *work
// stands for the operation.

// output becomes the reduction of all inputs. input NULL: in place.
int lockstep_all_reduce(lockstep_group group, const lockstep_tensor* output,
                        const lockstep_tensor* input, int reduce, lockstep_work* work);
// Several tensors in place, each by itself.
int lockstep_all_reduce_many(lockstep_group group, const lockstep_tensor* tensors,
                             size_t tensor_count, int reduce, lockstep_work* work);
// root's tensor becomes the reduction; the others' stay as they are.
int lockstep_reduce(lockstep_group group, const lockstep_tensor* tensor, int root, int reduce,
                    lockstep_work* work);
int lockstep_broadcast(lockstep_group group, const lockstep_tensor* tensor, int root,
                       lockstep_work* work);
int lockstep_broadcast_many(lockstep_group group, const lockstep_tensor* tensors,
                            size_t tensor_count, int root, lockstep_work* work);
// In these, counts has as many elements as the group has ranks, or is NULL: parts of one size.
// gather: output is looked at on root alone and may be NULL elsewhere; scatter: input.
int lockstep_all_gather(lockstep_group group, const lockstep_tensor* output,
                        const lockstep_tensor* input, const int64_t* counts, lockstep_work* work);
int lockstep_reduce_scatter(lockstep_group group, const lockstep_tensor* output,
                            const lockstep_tensor* input, int reduce, const int64_t* counts,
                            lockstep_work* work);
int lockstep_gather(lockstep_group group, const lockstep_tensor* output,
                    const lockstep_tensor* input, int root, const int64_t* counts,
                    lockstep_work* work);
int lockstep_scatter(lockstep_group group, const lockstep_tensor* output,
                     const lockstep_tensor* input, int root, const int64_t* counts,
                     lockstep_work* work);
int lockstep_all_to_all(lockstep_group group, const lockstep_tensor* output,
                        const lockstep_tensor* input, const int64_t* receive_counts,
                        const int64_t* send_counts, lockstep_work* work);
int lockstep_barrier(lockstep_group group, lockstep_work* work);
// Between two ranks, in the order of their calls.
int lockstep_send(lockstep_group group, const lockstep_tensor* tensor, int to, lockstep_work* work);
int lockstep_receive(lockstep_group group, const lockstep_tensor* tensor, int from,
                     lockstep_work* work);
// Each rank's text, in rank order, at most 16 MiB each: *texts and *text_bytes point to one per
// rank, valid until the next exchange on this group or its end. Blocks.
int lockstep_exchange(lockstep_group group, const char* text, size_t bytes,
                      const char* const** texts, const size_t** text_bytes);

// Blocks until the operation is complete; returns its status.
int lockstep_work_wait(lockstep_work work);
// *done becomes 1 when the operation is complete, else 0. Returns the status of an operation that
// has failed; *done is 1 then.
int lockstep_work_test(lockstep_work work, int* done);
// Does not wait: tensors must stay until the operation is done all the same.
int lockstep_work_free(lockstep_work work);
// Moves operations under way as far as possible without blocking; *idle (unless NULL) becomes 1
// when none is left, else 0.
int lockstep_poll(lockstep_group group, int* idle);

// Collective. The ranks that give the same colour form a group, numbered by key, then by rank. A
// negative colour: *part becomes LOCKSTEP_NONE.
int lockstep_split(lockstep_group group, int colour, int key, lockstep_group* part);
// Collective: the listed ranks form a group, numbered in that order; the others get LOCKSTEP_NONE.
int lockstep_subgroup(lockstep_group group, const int* ranks, size_t rank_count,
                      lockstep_group* part);

// Collective, the same size everywhere: zeroed memory, 64-byte aligned, over which collectives copy
// nothing. Freed with its handle, not with the group.
int lockstep_allocate(lockstep_group group, size_t bytes, lockstep_memory* memory, void** data);
int lockstep_memory_free(lockstep_memory memory);

// Breaks the group on all ranks with LOCKSTEP_CANCELLED and `why` (unless NULL).
int lockstep_abort(lockstep_group group, const char* why);

#ifdef __cplusplus
}
#endif

#endif  // LOCKSTEP_LOCKSTEP_C_H_

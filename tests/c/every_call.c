/* Calls every function of lockstep_c.h on 3 ranks and compares what comes out.
   every_call [MODE]
     all      every call, and every kind of misuse (the default)
     disagree rank 1 reduces 3 elements where the others reduce 4
     abort    rank 1 breaks the group while the others wait
     lost     rank 1 ends without freeing its group while the others wait
   The last three print "STATUS: MESSAGE" of the call that failed, and end with that status. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lockstep/lockstep_c.h"

#define RANKS 3

static int rank_ = -1;

static void check(int holds, const char* what, int line) {
  if (holds) return;
  fprintf(stderr, "rank %d: line %d: %s (last error: %s)\n", rank_, line, what,
          lockstep_last_error());
  exit(99);
}
#define CHECK(condition) check((condition), #condition, __LINE__)
#define OK(call) check((call) == LOCKSTEP_OK, #call, __LINE__)

/* The call is refused, and says why in words that contain `words`. */
static void check_refused(int status, const char* words, const char* what, int line) {
  check(status == LOCKSTEP_INVALID_ARGUMENT, what, line);
  check(strstr(lockstep_last_error(), words) != NULL, words, line);
}
#define REFUSED(call, words) check_refused((call), (words), #call, __LINE__)

static lockstep_tensor f32(float* values, int64_t count) {
  return lockstep_dense(values, count, LOCKSTEP_F32);
}
static lockstep_tensor i64(int64_t* values, int64_t count) {
  return lockstep_dense(values, count, LOCKSTEP_I64);
}

static void about_the_library(void) {
  CHECK(lockstep_c_api_version() == LOCKSTEP_C_API_VERSION);
  CHECK(strlen(lockstep_version()) >= 5);
  CHECK(strcmp(lockstep_status_name(LOCKSTEP_OK), "ok") == 0);
  CHECK(strcmp(lockstep_status_name(LOCKSTEP_PEER_LOST), "peer_lost") == 0);
  CHECK(strcmp(lockstep_status_name(LOCKSTEP_IO), "io") == 0);
  CHECK(strcmp(lockstep_status_name(1000), "unknown") == 0);
  CHECK(strcmp(lockstep_last_error(), "") == 0);
}

static void about_the_group(lockstep_group group) {
  const char* name = lockstep_transport_name(group);
  CHECK(rank_ >= 0 && rank_ < RANKS);
  CHECK(lockstep_size(group) == RANKS);
  CHECK(lockstep_local_rank(group) == rank_);
  CHECK(lockstep_local_size(group) == RANKS);
  CHECK(strcmp(name, "shared memory") == 0 || strcmp(name, "tcp") == 0);
}

static void reductions(lockstep_group group) {
  float values[4], other[4];
  int64_t numbers[2] = {rank_, -rank_};
  lockstep_tensor tensor = f32(values, 4), from = f32(other, 4);
  lockstep_tensor many[2];
  int64_t before = lockstep_bytes_reduced(group);
  int i;
  for (i = 0; i < 4; ++i) values[i] = other[i] = (float)(rank_ + i);
  OK(lockstep_all_reduce(group, &tensor, NULL, LOCKSTEP_SUM, NULL));
  for (i = 0; i < 4; ++i) CHECK(values[i] == (float)(3 + 3 * i));
  OK(lockstep_all_reduce(group, &tensor, &from, LOCKSTEP_MEAN, NULL));
  for (i = 0; i < 4; ++i) CHECK(values[i] == (float)(1 + i) && other[i] == (float)(rank_ + i));
  CHECK(lockstep_bytes_reduced(group) == before + 32);

  many[0] = tensor;
  many[1] = i64(numbers, 2);
  OK(lockstep_all_reduce_many(group, many, 2, LOCKSTEP_MAX, NULL));
  CHECK(values[3] == 4 && numbers[0] == 2 && numbers[1] == 0);

  numbers[0] = 1 << rank_;
  tensor = i64(numbers, 1);
  OK(lockstep_reduce(group, &tensor, 2, LOCKSTEP_BOR, NULL));
  CHECK(numbers[0] == (rank_ == 2 ? 7 : 1 << rank_));
}

static void broadcasts(lockstep_group group) {
  float value = (float)rank_;
  int64_t number = rank_;
  lockstep_tensor many[2];
  many[0] = f32(&value, 1);
  many[1] = i64(&number, 1);
  OK(lockstep_broadcast(group, &many[0], 2, NULL));
  CHECK(value == 2);
  OK(lockstep_broadcast_many(group, many, 2, 1, NULL));
  CHECK(value == 2 && number == 1);
}

static void gathers_and_scatters(lockstep_group group) {
  static const int64_t counts[RANKS] = {1, 0, 2};
  int64_t own[2], all[RANKS] = {-1, -1, -1};
  lockstep_tensor part = i64(own, 1), whole = i64(all, RANKS);
  own[0] = own[1] = 10 + rank_;
  OK(lockstep_all_gather(group, &whole, &part, NULL, NULL));
  CHECK(all[0] == 10 && all[1] == 11 && all[2] == 12);
  part.count = counts[rank_];
  OK(lockstep_all_gather(group, &whole, &part, counts, NULL));
  CHECK(all[0] == 10 && all[1] == 12 && all[2] == 12);
  OK(lockstep_reduce_scatter(group, &part, &whole, LOCKSTEP_SUM, counts, NULL));
  CHECK(rank_ != 0 || own[0] == 30);
  CHECK(rank_ != 2 || (own[0] == 36 && own[1] == 36));

  own[0] = own[1] = 20 + rank_;
  OK(lockstep_gather(group, rank_ == 1 ? &whole : NULL, &part, 1, counts, NULL));
  CHECK(rank_ != 1 || (all[0] == 20 && all[1] == 22 && all[2] == 22));
  part.count = 1;
  OK(lockstep_scatter(group, &part, rank_ == 1 ? &whole : NULL, 1, NULL, NULL));
  CHECK(own[0] == (rank_ == 0 ? 20 : 22));
}

/* Rank r sends r + 1 elements to each rank below it, and none to the others. */
static void all_to_all(lockstep_group group) {
  int64_t to[RANKS] = {0, 0, 0}, from[RANKS] = {0, 0, 0}, out[RANKS] = {0, 1, 2}, in[RANKS];
  int64_t many_out[8], many_in[8];
  lockstep_tensor output = i64(in, RANKS), input = i64(out, RANKS);
  int r, i;
  for (i = 0; i < RANKS; ++i) out[i] += 10 * rank_;
  OK(lockstep_all_to_all(group, &output, &input, NULL, NULL, NULL));
  for (i = 0; i < RANKS; ++i) CHECK(in[i] == 10 * i + rank_);

  for (r = 0; r < rank_; ++r) to[r] = rank_ + 1;
  for (r = rank_ + 1; r < RANKS; ++r) from[r] = r + 1;
  for (i = 0; i < 8; ++i) many_out[i] = 100 * rank_ + i;
  output = i64(many_in, from[0] + from[1] + from[2]);
  input = i64(many_out, to[0] + to[1] + to[2]);
  OK(lockstep_all_to_all(group, &output, &input, from, to, NULL));
  CHECK(rank_ != 0 || (many_in[0] == 100 && many_in[1] == 101 && many_in[2] == 200));
  CHECK(rank_ != 1 || (many_in[0] == 203 && many_in[2] == 205));
}

/* Around the ring, asynchronously: nobody has to go first. */
static void between_two(lockstep_group group) {
  float out = (float)rank_, in = -1;
  lockstep_tensor to = f32(&out, 1), from = f32(&in, 1);
  lockstep_work sent, received;
  OK(lockstep_send(group, &to, (rank_ + 1) % RANKS, &sent));
  OK(lockstep_receive(group, &from, (rank_ + RANKS - 1) % RANKS, &received));
  OK(lockstep_work_wait(sent));
  OK(lockstep_work_wait(received));
  OK(lockstep_work_free(sent));
  OK(lockstep_work_free(received));
  CHECK(in == (float)((rank_ + RANKS - 1) % RANKS));
}

static void texts(lockstep_group group) {
  static const char* const all[RANKS] = {"", "one", "two two"};
  const char* const* got;
  const size_t* bytes;
  int r;
  OK(lockstep_exchange(group, all[rank_], strlen(all[rank_]), &got, &bytes));
  for (r = 0; r < RANKS; ++r) CHECK(bytes[r] == strlen(all[r]) && strcmp(got[r], all[r]) == 0);
}

static void asynchronous(lockstep_group group) {
  enum { kCount = 100000 };
  float* values = malloc(kCount * sizeof(float));
  lockstep_tensor tensor = f32(values, kCount);
  lockstep_work works[3];
  int done = 0, idle = 0, i;
  for (i = 0; i < kCount; ++i) values[i] = 1;
  for (i = 0; i < 2; ++i) OK(lockstep_all_reduce(group, &tensor, NULL, LOCKSTEP_SUM, &works[i]));
  OK(lockstep_barrier(group, &works[2]));
  CHECK(works[0] != works[1]);
  while (!done) OK(lockstep_work_test(works[2], &done));
  OK(lockstep_work_test(works[0], &done));
  CHECK(done == 1 && values[0] == 9 && values[kCount - 1] == 9);
  while (!idle) OK(lockstep_poll(group, &idle));
  OK(lockstep_poll(group, NULL));
  for (i = 0; i < 3; ++i) OK(lockstep_work_wait(works[i]));
  for (i = 0; i < 3; ++i) OK(lockstep_work_free(works[i]));
  REFUSED(lockstep_work_wait(works[0]), "is no work");
  free(values);
  OK(lockstep_barrier(group, NULL));
}

/* The transposed halves of a matrix: two columns of every rank's 2 x 3. */
static void strided(lockstep_group group) {
  static const int64_t sizes[2] = {2, 2}, strides[2] = {3, 1};
  float matrix[6] = {1, 2, 3, 4, 5, 6};
  lockstep_tensor columns = f32(matrix, 4);
  columns.dimensions = 2;
  columns.sizes = sizes;
  columns.strides = strides;
  OK(lockstep_all_reduce(group, &columns, NULL, LOCKSTEP_SUM, NULL));
  CHECK(matrix[0] == 3 && matrix[1] == 6 && matrix[2] == 3);
  CHECK(matrix[3] == 12 && matrix[4] == 15 && matrix[5] == 6);
  columns.count = 5;
  REFUSED(lockstep_all_reduce(group, &columns, NULL, LOCKSTEP_SUM, NULL), "5 elements whose sizes");
  columns.count = 4;
  columns.strides = NULL;
  REFUSED(lockstep_all_reduce(group, &columns, NULL, LOCKSTEP_SUM, NULL), "strides is NULL");
}

static void parts(lockstep_group group) {
  static const int listed[2] = {2, 0};
  lockstep_group part, pair;
  int64_t sum = rank_;
  lockstep_tensor tensor = i64(&sum, 1);
  OK(lockstep_split(group, rank_ == 1 ? -1 : 5, -rank_, &part));
  CHECK((part == LOCKSTEP_NONE) == (rank_ == 1));
  if (part != LOCKSTEP_NONE) {
    CHECK(lockstep_size(part) == 2 && lockstep_rank(part) == (rank_ == 2 ? 0 : 1));
    OK(lockstep_all_reduce(part, &tensor, NULL, LOCKSTEP_SUM, NULL));
    CHECK(sum == 2);
  }
  OK(lockstep_subgroup(group, listed, 2, &pair));
  CHECK((pair == LOCKSTEP_NONE) == (rank_ == 1));
  if (pair != LOCKSTEP_NONE) OK(lockstep_barrier(pair, NULL));
  OK(lockstep_group_free(part));
  OK(lockstep_group_free(pair));
}

static void shared_memory(lockstep_group group) {
  enum { kCount = 5000 };
  lockstep_memory memory;
  void* data;
  float* values;
  lockstep_tensor tensor;
  int i;
  OK(lockstep_allocate(group, kCount * sizeof(float), &memory, &data));
  values = data;
  tensor = f32(values, kCount);
  CHECK((uintptr_t)data % 64 == 0);
  for (i = 0; i < kCount; ++i) CHECK(values[i] == 0);
  for (i = 0; i < kCount; ++i) values[i] = (float)(i + rank_);
  OK(lockstep_all_reduce(group, &tensor, NULL, LOCKSTEP_SUM, NULL));
  for (i = 0; i < kCount; ++i) CHECK(values[i] == (float)(3 * i + 3));
  OK(lockstep_barrier(group, NULL));
  OK(lockstep_memory_free(memory));
  REFUSED(lockstep_memory_free(memory), "is no memory");
}

/* None of these moves anything, so the group goes on. */
static void misuse(lockstep_group group) {
  float value = 1;
  int done;
  lockstep_group none;
  lockstep_memory memory;
  void* data;
  const char* const* got;
  const size_t* bytes;
  lockstep_tensor tensor = f32(&value, 1), bad = tensor;
  REFUSED(lockstep_barrier(LOCKSTEP_NONE, NULL), "is no group");
  REFUSED(lockstep_barrier(group + 1000000, NULL), "is no group");
  REFUSED(lockstep_work_wait(group), "is no work");
  REFUSED(lockstep_work_test(group, &done), "is no work");
  REFUSED(lockstep_work_test(group, NULL), "done is NULL");
  REFUSED(lockstep_work_free(group), "is no work");
  REFUSED(lockstep_group_free(1), "is no group");
  REFUSED(lockstep_abort(7, "no"), "is no group");
  REFUSED(lockstep_poll(7, NULL), "is no group");
  CHECK(lockstep_rank(7) == -1 && lockstep_size(7) == -1 && lockstep_bytes_reduced(7) == -1);
  CHECK(lockstep_local_rank(7) == -1 && lockstep_local_size(7) == -1);
  CHECK(lockstep_transport_name(7) == NULL);
  REFUSED(lockstep_init(NULL), "group is NULL");
  REFUSED(lockstep_init_with(NULL, &none), "settings is NULL");
  REFUSED(lockstep_all_reduce(group, NULL, NULL, LOCKSTEP_SUM, NULL), "output is NULL");
  REFUSED(lockstep_all_reduce(group, &tensor, NULL, 8, NULL), "8 is no reduction");
  REFUSED(lockstep_all_reduce_many(group, NULL, 2, LOCKSTEP_SUM, NULL), "tensors is NULL");
  REFUSED(lockstep_reduce(group, &tensor, 3, LOCKSTEP_SUM, NULL), "root 3");
  REFUSED(lockstep_reduce(group, &tensor, 0, LOCKSTEP_BXOR, NULL), "f32 has no bxor");
  REFUSED(lockstep_broadcast(group, NULL, 0, NULL), "tensor is NULL");
  REFUSED(lockstep_gather(group, rank_ == 0 ? NULL : &tensor, &tensor, 9, NULL, NULL), "root 9");
  REFUSED(lockstep_send(group, &tensor, rank_, NULL), "is this rank itself");
  REFUSED(lockstep_receive(group, &tensor, -1, NULL), "-1 is not a rank");
  REFUSED(lockstep_split(group, 0, 0, NULL), "part is NULL");
  REFUSED(lockstep_subgroup(group, NULL, 1, &none), "ranks is NULL");
  REFUSED(lockstep_allocate(group, 1, NULL, &data), "memory is NULL");
  REFUSED(lockstep_allocate(group, 1, &memory, NULL), "data is NULL");
  REFUSED(lockstep_exchange(group, NULL, 1, &got, &bytes), "text is NULL");
  bad.dtype = 9;
  REFUSED(lockstep_broadcast(group, &bad, 0, NULL), "9 is no element type");
  bad = tensor;
  bad.data = NULL;
  REFUSED(lockstep_broadcast(group, &bad, 0, NULL), "has no memory");
  bad = tensor;
  bad.dimensions = -1;
  REFUSED(lockstep_broadcast(group, &bad, 0, NULL), "-1 dimensions");
  bad = tensor;
  bad.reserved = 1;
  REFUSED(lockstep_broadcast(group, &bad, 0, NULL), "reserved");
  OK(lockstep_group_free(LOCKSTEP_NONE));
  OK(lockstep_barrier(group, NULL));
}

/* Settings that the caller gives, on a group of one. */
static void settings(void) {
  static const char* const one[] = {"LOCKSTEP_TIMEOUT=5", "LOCKSTEP_RECORD=none", NULL};
  static const char* const unknown[] = {"LOCKSTEP_TIMEOUT=5", "LOCKSTEP_TIMEOOT=5", NULL};
  static const char* const twice[] = {"LOCKSTEP_TIMEOUT=5", "LOCKSTEP_TIMEOUT=6", NULL};
  static const char* const without[] = {"LOCKSTEP_TIMEOUT", NULL};
  static const char* const wrong[] = {"RANK=3", "WORLD_SIZE=3", NULL};
  lockstep_group group;
  lockstep_work work;
  float value = 2;
  lockstep_tensor tensor = f32(&value, 1);
  int done = 0;
  REFUSED(lockstep_init_with(one, NULL), "group is NULL");
  REFUSED(lockstep_init_with(unknown, &group), "'LOCKSTEP_TIMEOOT' is no setting");
  REFUSED(lockstep_init_with(twice, &group), "'LOCKSTEP_TIMEOUT' is given twice");
  REFUSED(lockstep_init_with(without, &group), "is not NAME=VALUE");
  REFUSED(lockstep_init_with(wrong, &group), "RANK='3'");
  OK(lockstep_init_with(one, &group));
  CHECK(lockstep_size(group) == 1);
  OK(lockstep_all_reduce(group, &tensor, NULL, LOCKSTEP_SUM, &work));
  OK(lockstep_work_test(work, &done));
  CHECK(done == 1 && value == 2);
  OK(lockstep_group_free(group));
  OK(lockstep_work_wait(work));
  OK(lockstep_work_free(work));
  REFUSED(lockstep_group_free(group), "is no group");
}

static int end_with(int status) {
  CHECK(status != LOCKSTEP_OK);
  printf("%s: %s\n", lockstep_status_name(status), lockstep_last_error());
  fflush(stdout);
  return status;
}

/* The status of an operation that cannot succeed, blocking, tested for, and after it. */
static int failing(lockstep_group group, const char* mode) {
  float values[4] = {0, 0, 0, 0};
  lockstep_tensor tensor = f32(values, 4);
  lockstep_work work;
  int done = 0, status = LOCKSTEP_OK;
  if (rank_ == 1 && strcmp(mode, "disagree") == 0) tensor.count = 3;
  if (rank_ == 1 && strcmp(mode, "lost") == 0) exit(0);
  if (rank_ == 1 && strcmp(mode, "abort") == 0) OK(lockstep_abort(group, "enough"));
  status = lockstep_all_reduce(group, &tensor, NULL, LOCKSTEP_SUM, rank_ == 0 ? &work : NULL);
  if (rank_ == 0 && status == LOCKSTEP_OK) {
    while (!done) status = lockstep_work_test(work, &done);
    CHECK(lockstep_work_wait(work) == status);
    OK(lockstep_work_free(work));
  }
  CHECK(lockstep_barrier(group, NULL) == status);
  end_with(status);
  OK(lockstep_group_free(group));
  return status;
}

int main(int argc, char** argv) {
  const char* mode = argc > 1 ? argv[1] : "all";
  lockstep_group group = LOCKSTEP_NONE;
  int status;
  about_the_library();
  status = lockstep_init(&group);
  if (status != LOCKSTEP_OK) return end_with(status);
  rank_ = lockstep_rank(group);
  if (strcmp(mode, "all") != 0) return failing(group, mode);
  about_the_group(group);
  reductions(group);
  broadcasts(group);
  gathers_and_scatters(group);
  all_to_all(group);
  between_two(group);
  texts(group);
  asynchronous(group);
  strided(group);
  parts(group);
  shared_memory(group);
  misuse(group);
  settings();
  OK(lockstep_group_free(group));
  return 0;
}

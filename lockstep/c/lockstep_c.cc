#include "lockstep/lockstep_c.h"

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "lockstep/base/version.h"
#include "lockstep/c/handles.h"
#include "lockstep/c/status.h"
#include "lockstep/group/group.h"

namespace lockstep {

namespace {

static_assert(LOCKSTEP_INVALID_ARGUMENT == static_cast<int>(Code::invalid_argument));
static_assert(LOCKSTEP_UNSUPPORTED == static_cast<int>(Code::unsupported));
static_assert(LOCKSTEP_TIMEOUT == static_cast<int>(Code::timeout));
static_assert(LOCKSTEP_PEER_LOST == static_cast<int>(Code::peer_lost));
static_assert(LOCKSTEP_GENERATION_CHANGED == static_cast<int>(Code::generation_changed));
static_assert(LOCKSTEP_CANCELLED == static_cast<int>(Code::cancelled));
static_assert(LOCKSTEP_CORRUPT == static_cast<int>(Code::corrupt));
static_assert(LOCKSTEP_UNAUTHENTICATED == static_cast<int>(Code::unauthenticated));
static_assert(LOCKSTEP_IO == static_cast<int>(Code::io));
static_assert(LOCKSTEP_BOOL == static_cast<int>(DType::boolean));
static_assert(LOCKSTEP_F16 == static_cast<int>(DType::f16));
static_assert(LOCKSTEP_F64 == static_cast<int>(DType::f64) && LOCKSTEP_F64 == kDTypeCount - 1);
static_assert(LOCKSTEP_SUM == static_cast<int>(Reduce::sum));
static_assert(LOCKSTEP_BXOR == static_cast<int>(Reduce::bxor));
static_assert(LOCKSTEP_BXOR == kReduceCount - 1);

constexpr int kDimensionsMax = 64;

// What a group's handle stands for, with what its callers were given pointers to.
struct OpenGroup {
  explicit OpenGroup(Group&& joined)
      : group(std::move(joined)), transport_name(group.transport_name()) {}

  Group group;
  const std::string transport_name;
  std::vector<std::string> texts;
  std::vector<const char*> text_begins;
  std::vector<std::size_t> text_bytes;
};

// A call that uses the work keeps its group meanwhile; else the work does not.
struct OpenWork {
  Work work;
  std::weak_ptr<OpenGroup> group;
};

struct Tables {
  HandleNumbers numbers;
  Handles<std::shared_ptr<OpenGroup>> groups{numbers};
  Handles<OpenWork> works{numbers};
  Handles<std::shared_ptr<SharedBlock>> blocks{numbers};
};

// Never destroyed: at the end of the process threads may still be in calls, and a group that nobody
// has freed must look like one that was lost.
Tables& tables() {
  static Tables& tables = *new Tables;
  return tables;
}

[[noreturn]] void fail_unknown(std::uint64_t handle, const char* what) {
  fail(Code::invalid_argument, "{:#x} is no {}: it was freed, is of another kind, or never was one",
       handle, what);
}

template <class Object>
Object known(const Handles<Object>& handles, std::uint64_t handle, const char* what) {
  if (auto found = handles.find(handle)) return *std::move(found);
  fail_unknown(handle, what);
}

std::shared_ptr<OpenGroup> group_of(lockstep_group group) {
  return known(tables().groups, group, "group");
}

template <class T>
T& needed(T* pointer, const char* what) {
  if (pointer == nullptr) fail(Code::invalid_argument, "{} is NULL", what);
  return *pointer;
}

TensorView view_of(const lockstep_tensor* tensor, const char* what) {
  const lockstep_tensor& given = needed(tensor, what);
  if (given.dtype < 0 || given.dtype >= kDTypeCount) {
    fail(Code::invalid_argument, "{}: {} is no element type (0..{})", what, given.dtype,
         kDTypeCount - 1);
  }
  if (given.dimensions < 0 || given.dimensions > kDimensionsMax) {
    fail(Code::invalid_argument, "{}: {} dimensions (0..{})", what, given.dimensions,
         kDimensionsMax);
  }
  if (given.reserved != 0) {
    fail(Code::invalid_argument, "{}: reserved is {}, not 0", what, given.reserved);
  }
  TensorView view(given.data, given.count, static_cast<DType>(given.dtype));
  view.complex = given.is_complex != 0;
  if (given.dimensions == 0) return view;
  const auto dimensions = static_cast<std::size_t>(given.dimensions);
  view.sizes = {&needed(given.sizes, "sizes"), dimensions};
  view.strides = {&needed(given.strides, "strides"), dimensions};
  return view;
}

// For a side of an operation that this rank may leave out.
TensorView view_or_none(const lockstep_tensor* tensor, const char* what, const TensorView& other) {
  return tensor != nullptr ? view_of(tensor, what) : TensorView(nullptr, 0, other.dtype);
}

std::vector<TensorView> views_of(const lockstep_tensor* tensors, std::size_t tensor_count) {
  std::vector<TensorView> views;
  for (std::size_t i = 0; i < tensor_count; ++i) {
    views.push_back(view_of(&needed(tensors, "tensors") + i, "tensors"));
  }
  return views;
}

Reduce reduce_of(int reduce) {
  if (reduce >= 0 && reduce < kReduceCount) return static_cast<Reduce>(reduce);
  fail(Code::invalid_argument, "{} is no reduction (0..{})", reduce, kReduceCount - 1);
}

Counts counts_of(const std::int64_t* counts, int ranks) {
  if (counts == nullptr) return {};
  return {counts, static_cast<std::size_t>(ranks)};
}

// call(group) on the group that blocks, or on the one that returns a Work.
template <class Call>
int collective(const char* function, lockstep_group handle, lockstep_work* work,
               const Call& call) noexcept {
  return status_of(function, [&] {
    const auto open = group_of(handle);
    if (work == nullptr) return call(open->group);
    AsyncGroup async = open->group.async();
    *work = tables().works.add({call(async), open});
  });
}

// A number that needs no status of its own; -1: there is no such group.
template <class Call>
auto number_of(const char* function, lockstep_group handle, const Call& call) noexcept {
  std::invoke_result_t<Call, Group&> number = -1;
  status_of(function, [&] { number = call(group_of(handle)->group); });
  return number;
}

lockstep_group open_handle(Group&& group) {
  return tables().groups.add(std::make_shared<OpenGroup>(std::move(group)));
}

template <class Object>
int free_handle(const char* function, Handles<Object>& handles, std::uint64_t handle,
                const char* what) noexcept {
  return status_of(function, [&] {
    if (handle != LOCKSTEP_NONE && !handles.remove(handle)) fail_unknown(handle, what);
  });
}

// Settings from "NAME=VALUE" texts, each of which must have been looked at.
Settings settings_of(const char* const* texts) {
  std::map<std::string, std::string> given;
  for (const char* const* text = &needed(texts, "settings"); *text != nullptr; ++text) {
    const char* equals = std::strchr(*text, '=');
    if (equals == nullptr || equals == *text) {
      fail(Code::invalid_argument, "settings: '{}' is not NAME=VALUE", *text);
    }
    if (!given.emplace(std::string(*text, equals), equals + 1).second) {
      fail(Code::invalid_argument, "settings: '{}' is given twice", std::string(*text, equals));
    }
  }
  std::map<std::string, std::string> unused = given;
  Settings settings = Settings::from([&](const char* name) -> std::optional<std::string> {
    unused.erase(name);
    const auto found = given.find(name);
    return found == given.end() ? std::nullopt : std::optional<std::string>(found->second);
  });
  if (unused.empty()) return settings;
  fail(Code::invalid_argument,
       "settings: '{}' is no setting, or means nothing beside the others (docs/settings.md)",
       unused.begin()->first);
}

}  // namespace

}  // namespace lockstep

using namespace lockstep;

int lockstep_c_api_version(void) {
  return LOCKSTEP_C_API_VERSION;
}

const char* lockstep_version(void) {
  return kVersion;
}

const char* lockstep_status_name(int status) {
  return status == LOCKSTEP_OK ? "ok" : to_string(static_cast<Code>(status)).data();
}

const char* lockstep_last_error(void) {
  return remembered();
}

int lockstep_init(lockstep_group* group) {
  return status_of(__func__, [&] {
    needed(group, "group");
    *group = open_handle(init());
  });
}

int lockstep_init_with(const char* const* settings, lockstep_group* group) {
  return status_of(__func__, [&] {
    needed(group, "group");
    *group = open_handle(Group(settings_of(settings)));
  });
}

int lockstep_group_free(lockstep_group group) {
  return free_handle(__func__, tables().groups, group, "group");
}

int lockstep_rank(lockstep_group group) {
  return number_of(__func__, group, [](Group& of) { return of.rank(); });
}

int lockstep_size(lockstep_group group) {
  return number_of(__func__, group, [](Group& of) { return of.size(); });
}

int lockstep_local_rank(lockstep_group group) {
  return number_of(__func__, group, [](Group& of) { return of.local_rank(); });
}

int lockstep_local_size(lockstep_group group) {
  return number_of(__func__, group, [](Group& of) { return of.local_size(); });
}

const char* lockstep_transport_name(lockstep_group group) {
  const char* name = nullptr;
  status_of(__func__, [&] { name = group_of(group)->transport_name.c_str(); });
  return name;
}

int64_t lockstep_bytes_reduced(lockstep_group group) {
  return number_of(__func__, group, [](Group& of) { return of.bytes_reduced(); });
}

int lockstep_all_reduce(lockstep_group group, const lockstep_tensor* output,
                        const lockstep_tensor* input, int reduce, lockstep_work* work) {
  return collective(__func__, group, work, [&](auto& on) {
    const TensorView to = view_of(output, "output");
    const TensorView from = input == nullptr ? to : view_of(input, "input");
    return on.all_reduce(to, from, reduce_of(reduce));
  });
}

int lockstep_all_reduce_many(lockstep_group group, const lockstep_tensor* tensors,
                             size_t tensor_count, int reduce, lockstep_work* work) {
  return collective(__func__, group, work, [&](auto& on) {
    return on.all_reduce(views_of(tensors, tensor_count), reduce_of(reduce));
  });
}

int lockstep_reduce(lockstep_group group, const lockstep_tensor* tensor, int root, int reduce,
                    lockstep_work* work) {
  return collective(__func__, group, work, [&](auto& on) {
    return on.reduce(view_of(tensor, "tensor"), root, reduce_of(reduce));
  });
}

int lockstep_broadcast(lockstep_group group, const lockstep_tensor* tensor, int root,
                       lockstep_work* work) {
  return collective(__func__, group, work,
                    [&](auto& on) { return on.broadcast(view_of(tensor, "tensor"), root); });
}

int lockstep_broadcast_many(lockstep_group group, const lockstep_tensor* tensors,
                            size_t tensor_count, int root, lockstep_work* work) {
  return collective(__func__, group, work,
                    [&](auto& on) { return on.broadcast(views_of(tensors, tensor_count), root); });
}

int lockstep_all_gather(lockstep_group group, const lockstep_tensor* output,
                        const lockstep_tensor* input, const int64_t* counts, lockstep_work* work) {
  return collective(__func__, group, work, [&](auto& on) {
    return on.all_gather(view_of(output, "output"), view_of(input, "input"),
                         counts_of(counts, lockstep_size(group)));
  });
}

int lockstep_reduce_scatter(lockstep_group group, const lockstep_tensor* output,
                            const lockstep_tensor* input, int reduce, const int64_t* counts,
                            lockstep_work* work) {
  return collective(__func__, group, work, [&](auto& on) {
    return on.reduce_scatter(view_of(output, "output"), view_of(input, "input"), reduce_of(reduce),
                             counts_of(counts, lockstep_size(group)));
  });
}

int lockstep_gather(lockstep_group group, const lockstep_tensor* output,
                    const lockstep_tensor* input, int root, const int64_t* counts,
                    lockstep_work* work) {
  return collective(__func__, group, work, [&](auto& on) {
    const TensorView from = view_of(input, "input");
    return on.gather(view_or_none(output, "output", from), from, root,
                     counts_of(counts, lockstep_size(group)));
  });
}

int lockstep_scatter(lockstep_group group, const lockstep_tensor* output,
                     const lockstep_tensor* input, int root, const int64_t* counts,
                     lockstep_work* work) {
  return collective(__func__, group, work, [&](auto& on) {
    const TensorView to = view_of(output, "output");
    return on.scatter(to, view_or_none(input, "input", to), root,
                      counts_of(counts, lockstep_size(group)));
  });
}

int lockstep_all_to_all(lockstep_group group, const lockstep_tensor* output,
                        const lockstep_tensor* input, const int64_t* receive_counts,
                        const int64_t* send_counts, lockstep_work* work) {
  return collective(__func__, group, work, [&](auto& on) {
    const int ranks = lockstep_size(group);
    return on.all_to_all(view_of(output, "output"), view_of(input, "input"),
                         counts_of(receive_counts, ranks), counts_of(send_counts, ranks));
  });
}

int lockstep_barrier(lockstep_group group, lockstep_work* work) {
  return collective(__func__, group, work, [](auto& on) { return on.barrier(); });
}

int lockstep_send(lockstep_group group, const lockstep_tensor* tensor, int to,
                  lockstep_work* work) {
  return collective(__func__, group, work,
                    [&](auto& on) { return on.send(view_of(tensor, "tensor"), to); });
}

int lockstep_receive(lockstep_group group, const lockstep_tensor* tensor, int from,
                     lockstep_work* work) {
  return collective(__func__, group, work,
                    [&](auto& on) { return on.receive(view_of(tensor, "tensor"), from); });
}

int lockstep_exchange(lockstep_group group, const char* text, size_t bytes,
                      const char* const** texts, const size_t** text_bytes) {
  return status_of(__func__, [&] {
    needed(texts, "texts");
    needed(text_bytes, "text_bytes");
    if (bytes > 0) needed(text, "text");
    const auto open = group_of(group);
    open->texts = open->group.exchange(std::string(text, bytes));
    open->text_begins.clear();
    open->text_bytes.clear();
    for (const std::string& of_rank : open->texts) {
      open->text_begins.push_back(of_rank.c_str());
      open->text_bytes.push_back(of_rank.size());
    }
    *texts = open->text_begins.data();
    *text_bytes = open->text_bytes.data();
  });
}

int lockstep_work_wait(lockstep_work work) {
  return status_of(__func__, [&] {
    const OpenWork open = known(tables().works, work, "work");
    const auto group = open.group.lock();
    open.work.wait();
  });
}

int lockstep_work_test(lockstep_work work, int* done) {
  return status_of(__func__, [&] {
    needed(done, "done");
    const OpenWork open = known(tables().works, work, "work");
    const auto group = open.group.lock();
    *done = open.work.done() ? 1 : 0;
    if (const auto error = open.work.error(); *done == 1 && error) throw *error;
  });
}

int lockstep_work_free(lockstep_work work) {
  return free_handle(__func__, tables().works, work, "work");
}

int lockstep_poll(lockstep_group group, int* idle) {
  return status_of(__func__, [&] {
    const bool none_left = group_of(group)->group.poll();
    if (idle != nullptr) *idle = none_left ? 1 : 0;
  });
}

int lockstep_split(lockstep_group group, int colour, int key, lockstep_group* part) {
  return status_of(__func__, [&] {
    needed(part, "part");
    auto formed = group_of(group)->group.split(colour, key);
    *part = formed ? open_handle(*std::move(formed)) : LOCKSTEP_NONE;
  });
}

int lockstep_subgroup(lockstep_group group, const int* ranks, size_t rank_count,
                      lockstep_group* part) {
  return status_of(__func__, [&] {
    needed(part, "part");
    if (rank_count > 0) needed(ranks, "ranks");
    const auto open = group_of(group);
    auto formed = open->group.subgroup(std::vector<int>(ranks, ranks + rank_count));
    *part = formed ? open_handle(*std::move(formed)) : LOCKSTEP_NONE;
  });
}

int lockstep_allocate(lockstep_group group, size_t bytes, lockstep_memory* memory, void** data) {
  return status_of(__func__, [&] {
    needed(memory, "memory");
    needed(data, "data");
    const std::shared_ptr<SharedBlock> allocated = group_of(group)->group.allocate(bytes);
    *memory = tables().blocks.add(allocated);
    *data = allocated->data();
  });
}

int lockstep_memory_free(lockstep_memory memory) {
  return free_handle(__func__, tables().blocks, memory, "memory");
}

int lockstep_abort(lockstep_group group, const char* why) {
  return status_of(__func__, [&] {
    group_of(group)->group.abort(why == nullptr ? "aborted without a reason" : why);
  });
}

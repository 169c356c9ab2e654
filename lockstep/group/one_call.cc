#include "lockstep/group/one_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>

#include "lockstep/plan/cutting.h"

namespace lockstep::test {

namespace {

constexpr std::size_t kGuardBytes = 64;
constexpr std::byte kGuard{0xa5};
constexpr std::byte kJunk{0x3c};

std::size_t up_to_64(std::size_t bytes) {
  return (bytes + 63) / 64 * 64;
}

// How many elements the part has that `from` gives to `to` (all_to_all), or that `to` has.
std::int64_t part_count(const Call& call, int from, int to) {
  if (!call.uneven) return call.count;
  const int kind = (from + 2 * to) % 4;
  return kind == 1 ? 0 : call.count + kind;
}

std::vector<std::int64_t> counts_for(const Call& call, int rank, int ranks, bool receives) {
  std::vector<std::int64_t> counts;
  const bool of_all = call.operation != Operation::all_to_all;
  for (int other = 0; other < ranks; ++other) {
    const int from = of_all ? 0 : (receives ? other : rank);
    counts.push_back(part_count(call, from, of_all ? other : (receives ? rank : other)));
  }
  return counts;
}

// A tensor between two guards.
struct Buffer {
  std::byte* data = nullptr;
  std::int64_t count = 0;
  std::size_t bytes = 0;

  TensorView view(DType dtype) const { return {data, count, dtype}; }
  Bytes copy() const { return {data, data + bytes}; }
  void guard() const {
    std::fill_n(data - kGuardBytes, kGuardBytes, kGuard);
    std::fill_n(data + bytes, kGuardBytes, kGuard);
  }
  bool guarded() const {
    const auto is_guard = [](std::byte byte) { return byte == kGuard; };
    return std::all_of(data - kGuardBytes, data, is_guard) &&
           std::all_of(data + bytes, data + bytes + kGuardBytes, is_guard);
  }
};

// Bytes that a buffer of `bytes` takes with its guards, wherever it starts.
std::size_t room_for(const Call& call, std::size_t bytes) {
  const auto shift = static_cast<std::size_t>(call.misaligned) * size_of(call.dtype);
  return kGuardBytes + up_to_64(shift + bytes + kGuardBytes);
}

Buffer place(const Call& call, std::byte* memory, std::int64_t count) {
  Buffer buffer;
  buffer.data =
      memory + kGuardBytes + static_cast<std::size_t>(call.misaligned) * size_of(call.dtype);
  buffer.count = count;
  buffer.bytes = static_cast<std::size_t>(count) * size_of(call.dtype);
  buffer.guard();
  return buffer;
}

Bytes input_of(const Call& call, int rank, std::int64_t begin, std::int64_t count) {
  Bytes bytes(static_cast<std::size_t>(count) * size_of(call.dtype));
  fill(bytes.data(), call.dtype, call.reduce, call.values, call.seed, rank, begin, count);
  return bytes;
}

// The reduction of `count` elements of all ranks. All ranks of a test ask for the same.
std::shared_ptr<const Bytes> reduction_of(const Call& call, int ranks, std::int64_t count) {
  using Key = std::tuple<DType, Reduce, Values, std::uint64_t, int, std::int64_t>;
  static std::mutex mutex;
  static std::map<Key, std::shared_ptr<const Bytes>> known;
  const Key key{call.dtype, call.reduce, call.values, call.seed, ranks, count};
  const std::lock_guard lock(mutex);
  if (known.size() > 100) known.clear();
  auto& found = known[key];
  if (found) return found;
  std::vector<Bytes> inputs;
  for (int rank = 0; rank < ranks; ++rank) inputs.push_back(input_of(call, rank, 0, count));
  found = std::make_shared<const Bytes>(reduced(inputs, call.dtype, call.reduce));
  return found;
}

// One rank's side of a call.
class Side {
 public:
  Side(Group& group, std::byte* memory, const Call& call)
      : group_(group),
        call_(call),
        shape_(shape_of(call, group.rank(), group.size(), counts_, receive_counts_)),
        parts_(group.size(), call.count, shape_.counts),
        came_(group.size(), call.count, shape_.receive_counts),
        memory_(memory) {}

  std::string run() {
    prepare();
    if (call_.asynchronous) {
      submit().wait();
    } else {
      block();
    }
    return verdict();
  }

 private:
  int rank() const { return group_.rank(); }
  int ranks() const { return group_.size(); }
  std::size_t bytes(std::int64_t count) const {
    return static_cast<std::size_t>(count) * size_of(call_.dtype);
  }
  bool is_root() const { return rank() == call_.root; }
  TensorView out() const { return output_.view(call_.dtype); }
  TensorView in() const { return input_.view(call_.dtype); }

  void prepare() {
    const std::int64_t data = data_count(shape_), input = input_count(shape_);
    const std::size_t half = room_for(call_, bytes(std::max(data, input)));
    switch (call_.operation) {
      case Operation::all_reduce:
      case Operation::reduce:
      case Operation::broadcast: {
        output_ = place(call_, memory_, data);
        input_ = output_;
        const bool apart = call_.operation == Operation::all_reduce && !call_.in_place;
        nested_ = !apart;
        if (apart) input_ = place(call_, memory_ + half, data);
        break;
      }
      case Operation::reduce_scatter:
      case Operation::scatter:
        input_ = place(call_, memory_, input);
        output_ = part_of(input_, data, call_.operation == Operation::reduce_scatter || is_root(),
                          memory_ + half);
        break;
      default:
        output_ = place(call_, memory_, data);
        input_ = part_of(output_, input,
                         call_.operation == Operation::all_gather ||
                             (call_.operation == Operation::gather && is_root()),
                         memory_ + half);
    }
    std::fill_n(output_.data, output_.bytes, kJunk);
    fill(input_.data, call_.dtype, call_.reduce, call_.values, call_.seed, rank(), 0, input_.count);
    input_before_ = input_.copy();
    output_before_ = output_.copy();
  }

  // This rank's part of `whole` if the call is in place and that has parts, else elsewhere.
  Buffer part_of(const Buffer& whole, std::int64_t count, bool has_own, std::byte* elsewhere) {
    if (!call_.in_place || !has_own || call_.operation == Operation::all_to_all) {
      return place(call_, elsewhere, count);
    }
    nested_ = true;
    return {whole.data + bytes(parts_[rank()].begin), count, bytes(count)};
  }

  void block() {
    switch (call_.operation) {
      case Operation::all_reduce:
        return call_.in_place ? group_.all_reduce(out(), call_.reduce)
                              : group_.all_reduce(out(), in(), call_.reduce);
      case Operation::reduce:
        return group_.reduce(out(), call_.root, call_.reduce);
      case Operation::broadcast:
        return group_.broadcast(out(), call_.root);
      case Operation::all_gather:
        return group_.all_gather(out(), in(), shape_.counts);
      case Operation::reduce_scatter:
        return group_.reduce_scatter(out(), in(), call_.reduce, shape_.counts);
      case Operation::gather:
        return group_.gather(out(), in(), call_.root, shape_.counts);
      case Operation::scatter:
        return group_.scatter(out(), in(), call_.root, shape_.counts);
      case Operation::all_to_all:
        return group_.all_to_all(out(), in(), shape_.receive_counts, shape_.counts);
      default:
        return group_.barrier();
    }
  }

  Work submit() {
    AsyncGroup async = group_.async();
    switch (call_.operation) {
      case Operation::all_reduce:
        return call_.in_place ? async.all_reduce(out(), call_.reduce)
                              : async.all_reduce(out(), in(), call_.reduce);
      case Operation::reduce:
        return async.reduce(out(), call_.root, call_.reduce);
      case Operation::broadcast:
        return async.broadcast(out(), call_.root);
      case Operation::all_gather:
        return async.all_gather(out(), in(), shape_.counts);
      case Operation::reduce_scatter:
        return async.reduce_scatter(out(), in(), call_.reduce, shape_.counts);
      case Operation::gather:
        return async.gather(out(), in(), call_.root, shape_.counts);
      case Operation::scatter:
        return async.scatter(out(), in(), call_.root, shape_.counts);
      case Operation::all_to_all:
        return async.all_to_all(out(), in(), shape_.receive_counts, shape_.counts);
      default:
        return async.barrier();
    }
  }

  // What this rank's output must be.
  Bytes expected() const {
    switch (call_.operation) {
      case Operation::all_reduce:
        return *reduction_of(call_, ranks(), call_.count);
      case Operation::reduce:
        return is_root() ? *reduction_of(call_, ranks(), call_.count) : output_before_;
      case Operation::broadcast:
        return input_of(call_, call_.root, 0, call_.count);
      case Operation::reduce_scatter: {
        const auto whole = reduction_of(call_, ranks(), parts_.total());
        const auto begin = whole->begin() + static_cast<std::ptrdiff_t>(bytes(own_begin()));
        return {begin, begin + static_cast<std::ptrdiff_t>(output_.bytes)};
      }
      case Operation::scatter:
        return input_of(call_, call_.root, own_begin(), output_.count);
      default:
        return gathered();
    }
  }
  std::int64_t own_begin() const { return parts_[rank()].begin; }

  Bytes gathered() const {
    const bool all = call_.operation == Operation::all_to_all;
    Bytes whole;
    if (call_.operation == Operation::gather && !is_root()) return whole;
    for (int from = 0; from < ranks(); ++from) {
      std::int64_t begin = 0;
      for (int to = 0; all && to < rank(); ++to) begin += part_count(call_, from, to);
      const std::int64_t count = all ? came_[from].count : parts_[from].count;
      const Bytes part = input_of(call_, from, begin, count);
      whole.insert(whole.end(), part.begin(), part.end());
    }
    return whole;
  }

  std::string verdict() const {
    if (call_.operation == Operation::barrier) return "";
    const Bytes right = expected();
    const Bytes got = output_.copy();
    std::string wrong;
    if (got != right) {
      const auto at = std::mismatch(got.begin(), got.end(), right.begin(), right.end()).first;
      wrong = fmt::format("element {} of {} is wrong",
                          static_cast<std::size_t>(at - got.begin()) / size_of(call_.dtype),
                          output_.count);
    }
    const bool inside = nested_ && output_.bytes <= input_.bytes;
    const bool holds = nested_ && !inside;
    Bytes input = input_before_;
    if (inside) {
      std::copy(right.begin(), right.end(), input.begin() + (output_.data - input_.data));
    }
    if (!holds && input_.copy() != input) wrong += " the input has changed";
    if (!(inside ? input_ : output_).guarded()) wrong += " bytes outside have changed";
    if (!nested_ && !input_.guarded()) wrong += " bytes around the input have changed";
    if (wrong.empty()) return "";
    return fmt::format("rank {}: {}: {}", rank(), call_.text(ranks()), wrong);
  }

  Group& group_;
  const Call& call_;
  std::vector<std::int64_t> counts_;
  std::vector<std::int64_t> receive_counts_;
  const Shape shape_;
  const Parts parts_;
  const Parts came_;
  std::byte* const memory_;
  Buffer output_;
  Buffer input_;
  bool nested_ = false;  // the smaller is a part of the larger
  Bytes input_before_;
  Bytes output_before_;
};

}  // namespace

bool has_parts(Operation operation) {
  return operation == Operation::all_gather || operation == Operation::reduce_scatter ||
         operation == Operation::gather || operation == Operation::scatter ||
         operation == Operation::all_to_all;
}

bool reduces(Operation operation) {
  return operation == Operation::all_reduce || operation == Operation::reduce ||
         operation == Operation::reduce_scatter;
}

std::string Call::text(int ranks) const {
  return fmt::format("{} by {} of {} {}[{}]{} on {} ranks, root {}{}{}, {} elements off alignment",
                     to_string(operation), algorithm == nullptr ? "any" : algorithm->name,
                     to_string(reduce), to_string(dtype), count, uneven ? " in uneven parts" : "",
                     ranks, root, in_place ? ", in place" : "", asynchronous ? ", async" : "",
                     misaligned);
}

Shape shape_of(const Call& call, int rank, int ranks, std::vector<std::int64_t>& counts,
               std::vector<std::int64_t>& receive_counts) {
  Shape shape;
  shape.operation = call.operation;
  shape.ranks = ranks;
  shape.rank = rank;
  shape.root = call.root;
  shape.count = call.count;
  cut_for_messages(shape, static_cast<std::int64_t>(size_of(call.dtype)));
  if (!call.uneven || !has_parts(call.operation)) return shape;
  counts = counts_for(call, rank, ranks, false);
  shape.counts = counts;
  if (call.operation != Operation::all_to_all) return shape;
  receive_counts = counts_for(call, rank, ranks, true);
  shape.receive_counts = receive_counts;
  return shape;
}

std::size_t bytes_needed(const Call& call, int ranks) {
  const std::int64_t parts = has_parts(call.operation) ? ranks : 1;
  const std::int64_t count = (call.count + (call.uneven ? 3 : 0)) * parts;
  return 2 * room_for(call, static_cast<std::size_t>(count) * size_of(call.dtype));
}

std::string make_call(Group& group, std::byte* memory, const Call& call) {
  return Side(group, memory, call).run();
}

}  // namespace lockstep::test

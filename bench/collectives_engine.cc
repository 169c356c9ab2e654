// What bench/collectives asks of Lockstep alone.
//   collectives_engine calling FILE   what it costs to call an operation (2 ranks)
//   collectives_engine crowd FILE     joins, meets, reduces; time and memory (any number of ranks)
//   collectives_engine plans FILE     how long plans take to make (one process)
// Each rank writes one line of JSON to FILE.RANK.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/collectives_loop.h"
#include "lockstep/group/group.h"
#include "lockstep/plan/algorithms.h"
#include "lockstep/plan/cutting.h"

namespace {

// Of all threads; nothing else in a measured stretch allocates.
std::atomic<std::int64_t> allocations{0};

void* counted(std::size_t bytes, std::size_t alignment) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  const std::size_t whole = (std::max<std::size_t>(bytes, 1) + alignment - 1) / alignment;
  if (void* memory = std::aligned_alloc(alignment, whole * alignment)) return memory;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(std::size_t bytes) {
  return counted(bytes, __STDCPP_DEFAULT_NEW_ALIGNMENT__);
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return counted(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace {

using Clock = std::chrono::steady_clock;

double us(Clock::duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

void write_line(const std::string& file, int rank, const std::string& line) {
  std::ofstream out(file + "." + std::to_string(rank));
  out << line << std::endl;
  if (!out) throw std::runtime_error("cannot write " + file);
}

// An operation on 1 KiB, whose shape is known after the warm-up.
void calling(const std::string& file) {
  constexpr int kWarm = 1000;
  constexpr int kCalls = 20'000;
  constexpr std::int64_t kCount = 256;
  lockstep::Group group = lockstep::init();
  const auto block = group.allocate(kCount * sizeof(float));
  const lockstep::TensorView tensor{block->data(), kCount, lockstep::DType::f32};
  std::vector<double> submit_us(kCalls), blocking_us(kCalls);
  for (int i = 0; i < kWarm; ++i) {
    group.async().all_reduce(tensor).wait();
    group.all_reduce(tensor);
  }
  const std::int64_t before = allocations.load();
  for (double& took : submit_us) {
    const auto start = Clock::now();
    const lockstep::Work work = group.async().all_reduce(tensor);
    took = us(Clock::now() - start);
    work.wait();
  }
  const std::int64_t between = allocations.load();
  for (double& took : blocking_us) {
    const auto start = Clock::now();
    group.all_reduce(tensor);
    took = us(Clock::now() - start);
  }
  const std::int64_t after = allocations.load();
  write_line(file, group.rank(),
             fmt::format("{{\"submit_us\": {}, \"blocking_us\": {}, \"async_allocations\": {}, "
                         "\"blocking_allocations\": {}}}",
                         median(submit_us), median(blocking_us),
                         static_cast<double>(between - before) / kCalls,
                         static_cast<double>(after - between) / kCalls));
}

std::int64_t kib_of(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  for (std::string word; file >> word;) {
    std::int64_t kib = 0;
    if (word == name && file >> kib) return kib;
  }
  throw std::runtime_error(path + " has no " + name);
}

void crowd(const std::string& file) {
  constexpr std::int64_t kCount = 256;
  lockstep::Group group = lockstep::init();
  group.barrier();
  float* data = lockstep::bench::ordinary_memory(kCount * sizeof(float));
  std::fill_n(data, kCount, 1.0F);
  group.all_reduce({data, kCount, lockstep::DType::f32});
  const double done_at = std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
  if (data[kCount - 1] != static_cast<float>(group.size())) {
    throw std::runtime_error(fmt::format("the sum of {} ones is {}", group.size(), data[0]));
  }
  group.barrier();  // everybody's pages are there, and shared by all
  const std::string maps = "/proc/self/smaps_rollup";
  write_line(file, group.rank(),
             fmt::format("{{\"done_at_s\": {:.6f}, \"rss_kib\": {}, \"pss_kib\": {}}}", done_at,
                         kib_of(maps, "Rss:"), kib_of(maps, "Pss:")));
  group.barrier();  // nobody leaves before all have counted
}

// The slowest of some ranks, for a tensor of 16 MiB of f32, cut as the engine cuts it.
double make_us(const lockstep::Algorithm& algorithm, int ranks) {
  constexpr std::int64_t kCount = 4 << 20;
  constexpr std::int64_t kElementBytes = 4;
  constexpr int kRanksPerHost = 8;
  const bool mixed =
      algorithm.needs.messages && (algorithm.needs.shared_data || algorithm.needs.shared_scratch);
  std::vector<int> hosts;
  for (int rank = 0; mixed && rank < ranks; ++rank) hosts.push_back(rank / kRanksPerHost);
  double slowest = 0;
  for (const int rank : {0, 1, ranks / 2, ranks - 1}) {
    lockstep::Shape shape;
    shape.operation = algorithm.operation;
    shape.ranks = ranks;
    shape.rank = rank;
    shape.count = kCount;
    shape.hosts = hosts;
    // Where there are parts, the tensor is all of them.
    if (lockstep::data_count(shape) > kCount || lockstep::input_count(shape) > kCount) {
      shape.count = kCount / ranks;
    }
    lockstep::cut_for_messages(shape, kElementBytes);
    lockstep::cut_for_scratch(shape, algorithm, kElementBytes, lockstep::kScratchBytes);
    std::vector<double> took(5);
    for (double& one : took) {
      const auto start = Clock::now();
      const lockstep::Plan plan = algorithm.make(shape);
      one = us(Clock::now() - start);
    }
    slowest = std::max(slowest, median(took));
  }
  return slowest;
}

void plans(const std::string& file) {
  std::string rows;
  for (const lockstep::Algorithm& algorithm : lockstep::algorithms()) {
    for (const int ranks : {64, 4096}) {
      rows += fmt::format(
          "{}{{\"operation\": \"{}\", \"algorithm\": \"{}\", \"ranks\": {}, \"make_us\": {:.3f}}}",
          rows.empty() ? "" : ", ", lockstep::to_string(algorithm.operation), algorithm.name, ranks,
          make_us(algorithm, ranks));
    }
  }
  write_line(file, 0, "{\"plans\": [" + rows + "]}");
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::string what = argc == 3 ? argv[1] : "";
    if (what == "calling") {
      calling(argv[2]);
    } else if (what == "crowd") {
      crowd(argv[2]);
    } else if (what == "plans") {
      plans(argv[2]);
    } else {
      std::fputs("collectives_engine: see the head of collectives_engine.cc\n", stderr);
      return 2;
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "collectives_engine: %s\n", error.what());
    return 1;
  }
}

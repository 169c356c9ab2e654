// What a group leaves behind: nothing. soak [OPERATIONS] [GROUPS] [TRANSPORT]
//
// Two ranks as threads of this process make OPERATIONS operations (100,000; shm or tcp) and make
// and drop GROUPS groups (200). Fails, saying what, if
//   - a blocking or asynchronous all_reduce of a known shape allocates anything,
//   - resident memory grows by more than 1 KiB an operation (least squares), or 16 MiB after the
//     first tenth,
//   - descriptors or threads are more at the end than at the start.
// Ranks are threads, so that one counter sees every allocation of both.
#include <dirent.h>
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "lockstep/group/ranks_as_threads.h"
#include "tests/count_allocations.h"

namespace lockstep {
namespace {

constexpr std::int64_t kGrowthBytesMax = 16 << 20;
constexpr double kSlopeBytesMax = 1024;
// Warm-up: every shape, and every buffer that grows to what it needs.
constexpr int kWarmUp = 3000;

std::int64_t resident_bytes() {
  std::int64_t total = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

int entries_of(const char* folder) {
  int count = 0;
  DIR* listing = ::opendir(folder);
  while (listing != nullptr && ::readdir(listing) != nullptr) ++count;
  if (listing != nullptr) ::closedir(listing);
  return count;
}

int descriptors() {
  return entries_of("/proc/self/fd");
}
int threads() {
  return entries_of("/proc/self/task");
}

// Resident memory over operations.
class Growth {
 public:
  void look(std::int64_t operation) {
    points_.emplace_back(static_cast<double>(operation), static_cast<double>(resident_bytes()));
  }
  double slope() const {
    double x = 0, y = 0, xx = 0, xy = 0;
    const auto count = static_cast<double>(points_.size());
    for (const auto& [at, bytes] : points_) {
      x += at;
      y += bytes;
      xx += at * at;
      xy += at * bytes;
    }
    return (count * xy - x * y) / (count * xx - x * x);
  }
  std::int64_t since_first_tenth() const {
    return static_cast<std::int64_t>(points_.back().second - points_[points_.size() / 10].second);
  }

 private:
  std::vector<std::pair<double, double>> points_;
};

std::atomic<bool> failed{false};

void require(bool holds, const std::string& what) {
  if (holds) return;
  failed = true;
  std::fprintf(stderr, "FAILED: %s\n", what.c_str());
}

TensorView view(std::vector<float>& values, std::size_t count) {
  return {values.data(), static_cast<std::int64_t>(count), DType::f32};
}

// Allocations of both ranks in a thousand calls, once all of them are known.
void count_allocations(Group& group, const char* what, const std::function<void()>& call) {
  for (int i = 0; i < kWarmUp; ++i) call();
  group.barrier();
  group.barrier();
  const std::int64_t before = allocations();
  group.barrier();
  for (int i = 0; i < 1000; ++i) call();
  group.barrier();
  const std::int64_t made = allocations() - before;
  group.barrier();
  if (group.rank() != 0) return;
  std::printf("%s: %lld allocations in 1,000 calls on 2 ranks\n", what,
              static_cast<long long>(made));
  require(made == 0, fmt::format("{} allocates: {} times in 1,000 calls", what, made));
}

// As many operations under way at once as never again: handles and queues grow to that.
void burst(Group& group, std::vector<float>& values) {
  const int other = 1 - group.rank();
  std::vector<float> came(64);
  std::vector<Work> works;
  for (std::size_t i = 0; i < 64; ++i) {
    works.push_back(group.async().all_reduce(view(values, 100)));
    works.push_back(group.async().send(view(values, 1), other));
    works.push_back(group.async().receive({came.data() + i, 1, DType::f32}, other));
  }
  for (const Work& work : works) work.wait();
  works.clear();
  for (std::size_t i = 0; i < 64; ++i) {
    works.push_back(group.async().send(view(values, 1), other));
    works.push_back(group.async().receive({came.data() + i, 1, DType::f32}, other));
  }
  for (const Work& work : works) work.wait();
}

void steady_state(Group& group) {
  const auto block = group.allocate(1 << 20);
  auto* shared = reinterpret_cast<float*>(block->data());
  std::vector<float> own(100'000);
  for (int i = 0; i < 3; ++i) burst(group, own);
  const TensorView in_arena(shared, 1000, DType::f32);
  count_allocations(group, "blocking all_reduce in shared memory",
                    [&] { group.all_reduce(in_arena); });
  count_allocations(group, "blocking all_reduce of own memory",
                    [&] { group.all_reduce(view(own, 1000)); });
  count_allocations(group, "blocking all_reduce of own memory, 400 kB",
                    [&] { group.all_reduce(view(own, own.size())); });
  count_allocations(group, "asynchronous all_reduce in shared memory",
                    [&] { group.async().all_reduce(in_arena).wait(); });
  count_allocations(group, "eight all_reduces under way", [&] {
    Work works[8];
    for (std::size_t i = 0; i < 8; ++i) works[i] = group.async().all_reduce(view(own, 100 + i));
    for (const Work& work : works) work.wait();
  });
  std::vector<float> all(2000);
  count_allocations(group, "all_gather, reduce_scatter, broadcast, barrier", [&] {
    group.all_gather(view(all, 2000), view(own, 1000));
    group.reduce_scatter(view(own, 1000), view(all, 2000));
    group.broadcast(view(own, 1000), 1);
    group.barrier();
  });
  const int other = 1 - group.rank();
  count_allocations(group, "send and receive", [&] {
    const Work sent = group.async().send(view(own, 1000), other);
    group.receive(view(all, 1000), other);
    sent.wait();
  });
}

// S-PERF-03: sizes that change all the time.
void many_operations(Group& group, std::int64_t operations) {
  Growth growth;
  std::vector<float> values(30'000);
  const std::int64_t every = std::max<std::int64_t>(1, operations / 100);
  for (std::int64_t i = 0; i < operations; ++i) {
    const auto count = static_cast<std::size_t>(30'000 - i % 30'000);
    // Large ones now and then: the number of operations is the point here, and of shapes.
    const auto part = i % 16 == 0 ? count : count % 512;
    if (i % 3 == 0) {
      group.async().all_reduce(view(values, part)).wait();
    } else {
      group.all_reduce(view(values, part));
    }
    if (i % 1000 == 0) {  // outputs of their own
      std::vector<float> all(2 * part);
      group.all_gather(view(all, all.size()), view(values, part));
    }
    if (group.rank() == 0 && i % every == 0) growth.look(i);
  }
  if (group.rank() != 0) return;
  std::printf("%lld operations: %.1f bytes an operation, %.1f MiB since the first tenth\n",
              static_cast<long long>(operations), growth.slope(),
              static_cast<double>(growth.since_first_tenth()) / (1 << 20));
  require(growth.slope() < kSlopeBytesMax, "memory grows with operations");
  require(growth.since_first_tenth() < kGrowthBytesMax, "memory grows with operations");
}

// S-PERF-05.
void many_groups(Group& group, int groups) {
  Growth growth;
  int descriptors_before = 0, threads_before = 0;
  const auto make_one = [&](int i) {
    auto part = i % 3 == 0 ? group.subgroup({1, 0}) : group.split(0, i % 2 == 0 ? group.rank() : 0);
    std::vector<float> values(100);
    part->all_reduce(view(values, 100));
    if (i % 4 == 0) part->allocate(4096);
  };
  for (int i = 0; i < groups; ++i) {
    make_one(i);
    if (group.rank() == 0) growth.look(i);
    if (i != groups / 10) continue;
    group.barrier();  // the other's is gone, too, and the next not there yet
    descriptors_before = descriptors();
    threads_before = threads();
    group.barrier();
  }
  group.barrier();
  const int more_descriptors = descriptors() - descriptors_before;
  const int more_threads = threads() - threads_before;
  group.barrier();  // nobody has left before both have counted
  if (group.rank() != 0) return;
  std::printf("%d groups: %+d descriptors, %+d threads, %.1f MiB since the first tenth\n", groups,
              more_descriptors, more_threads,
              static_cast<double>(growth.since_first_tenth()) / (1 << 20));
  require(std::abs(more_descriptors) <= 3, "descriptors are left by groups");
  require(std::abs(more_threads) <= 1, "threads are left by groups");
  require(growth.since_first_tenth() < kGrowthBytesMax, "memory is left by groups");
}

// S-PERF-05: jobs that end by a rank's mistake, one after the other.
void many_worlds(Transport transport) {
  for (int i = 0; i < 20; ++i) {
    const auto errors = run_ranks(4, transport, [&](Group& group) {
      std::vector<float> values(1000, 1);
      group.all_reduce(view(values, values.size()));
      if (group.rank() == i % 4) throw std::runtime_error("a mistake");
      group.all_reduce(view(values, values.size()));
    });
    for (const std::string& error : errors) require(!error.empty(), "a rank succeeded alone");
  }
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  using namespace lockstep;
  const std::int64_t operations = argc > 1 ? std::atoll(argv[1]) : 100'000;
  const int groups = argc > 2 ? std::atoi(argv[2]) : 200;
  const bool tcp = argc > 3 && std::strcmp(argv[3], "tcp") == 0;
  const int descriptors_before = descriptors();
  const auto errors = run_ranks(2, tcp ? Transport::tcp : Transport::shm, [&](Group& group) {
    steady_state(group);
    many_operations(group, operations);
    many_groups(group, groups);
  });
  for (const std::string& error : errors) require(error.empty(), error);
  many_worlds(tcp ? Transport::tcp : Transport::shm);
  require(descriptors() == descriptors_before, "descriptors are left by the job");
  require(threads() == 3, "threads are left by the job");  // ., .. and this one
  return failed ? 1 : 0;
}

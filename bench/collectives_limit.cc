// What memory itself allows an all-reduce of two buffers in place: two processes, each of which
// reads one half of both buffers, adds, and writes that half of both, and neither ever waits for
// the other. Nothing that keeps ranks in step can be faster. Each size is measured with three ways
// to store the sums; bench/collectives keeps the best.
//
// usage: collectives_limit --out PREFIX --sizes BYTES,BYTES,… --budget-ms N
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/collectives_loop.h"

// Highway compiles the part between BEFORE and AFTER once per instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/collectives_limit.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lockstep::bench {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Both buffers become the sum. They are aligned if there is a whole vector of them.
template <bool kStreamOwn, bool kStreamOther>
void AddInto(float* HWY_RESTRICT own, float* HWY_RESTRICT other, std::size_t count) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto sum = hn::Add(hn::Load(d, own + i), hn::Load(d, other + i));
    if constexpr (kStreamOwn) {
      hn::Stream(sum, d, own + i);
    } else {
      hn::Store(sum, d, own + i);
    }
    if constexpr (kStreamOther) {
      hn::Stream(sum, d, other + i);
    } else {
      hn::Store(sum, d, other + i);
    }
  }
  for (; i < count; ++i) own[i] = other[i] = own[i] + other[i];
  if constexpr (kStreamOwn || kStreamOther) hwy::FlushStream();
}

// By way of a block in the first-level cache: two streams are read, then each is written by itself.
void AddBlocks(float* HWY_RESTRICT own, float* HWY_RESTRICT other, std::size_t count) {
  constexpr std::size_t kBlockCount = 1024;
  alignas(64) float sums[kBlockCount];
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t at = 0;
  for (; at + kBlockCount <= count; at += kBlockCount) {
    for (std::size_t i = 0; i < kBlockCount; i += lanes) {
      hn::Store(hn::Add(hn::Load(d, own + at + i), hn::Load(d, other + at + i)), d, sums + i);
    }
    std::memcpy(own + at, sums, sizeof(sums));
    for (std::size_t i = 0; i < kBlockCount; i += lanes) {
      hn::Stream(hn::Load(d, sums + i), d, other + at + i);
    }
  }
  hwy::FlushStream();
  AddInto<false, true>(own + at, other + at, count - at);
}

void AddOrdinary(float* own, float* other, std::size_t count) {
  AddInto<false, false>(own, other, count);
}
void AddStreamOther(float* own, float* other, std::size_t count) {
  AddInto<false, true>(own, other, count);
}
void AddStreamBoth(float* own, float* other, std::size_t count) {
  AddInto<true, true>(own, other, count);
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::bench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::bench {
HWY_EXPORT(AddBlocks);
HWY_EXPORT(AddOrdinary);
HWY_EXPORT(AddStreamOther);
HWY_EXPORT(AddStreamBoth);

namespace {

using Clock = std::chrono::steady_clock;
using Add = void (*)(float* own, float* other, std::size_t count);

void add_ordinary(float* own, float* other, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(AddOrdinary)(own, other, count);
}
void add_stream_other(float* own, float* other, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(AddStreamOther)(own, other, count);
}
void add_stream_both(float* own, float* other, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(AddStreamBoth)(own, other, count);
}
void add_blocks(float* own, float* other, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(AddBlocks)(own, other, count);
}

struct Way {
  const char* name;
  Add add;
};

constexpr double kBatch_us = 1000;
constexpr std::int64_t kCallsMax = 1 << 20;
constexpr std::size_t kPageBytes = 4096;
constexpr std::size_t kAlignCount = 16;  // floats in a cache line

// What the two processes share beside the buffers.
struct Control {
  std::atomic<int> arrived{0};
  std::atomic<std::int64_t> agreed{0};
};

template <class T>
T* shared_memory(std::size_t bytes) {
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return static_cast<T*>(memory);
}

class Limit {
 public:
  Limit(int rank, Control* control, float* own, float* other, const std::string& out, double budget)
      : rank_(rank),
        control_(control),
        own_(own),
        other_(other),
        budget_us_(budget),
        out_((out + "." + std::to_string(rank)).c_str()) {}

  void size(std::int64_t bytes, const Way& way) {
    const std::size_t whole = static_cast<std::size_t>(bytes) / sizeof(float);
    const std::size_t half =
        whole >= 2 * kAlignCount ? whole / 2 / kAlignCount * kAlignCount : whole / 2;
    const std::size_t first = rank_ == 0 ? 0 : half;
    const std::size_t count = rank_ == 0 ? half : whole - half;
    const auto batch_us = [&](std::int64_t calls) {
      const auto start = Clock::now();
      for (std::int64_t i = 0; i < calls; ++i) way.add(own_ + first, other_ + first, count);
      return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
    };
    batch_us(1);
    std::int64_t calls = 1;
    double warm_us = 0;
    for (std::int64_t next = 1; next != 0;) {
      calls = next;
      warm_us = batch_us(calls);
      next = agree(warm_us >= kBatch_us || calls >= kCallsMax ? 0 : 2 * calls);
    }
    const std::int64_t batches =
        agree(std::clamp<std::int64_t>(static_cast<std::int64_t>(budget_us_ / warm_us), 3, 200));
    out_ << "{\"version\": \"" << way.name << "\", \"bytes\": " << bytes << ", \"calls\": " << calls
         << ", \"us\": [";
    for (std::int64_t i = 0; i < batches; ++i) {
      out_ << (i == 0 ? "" : ", ") << batch_us(calls) / static_cast<double>(calls);
    }
    out_ << "]}" << std::endl;
    agree(0);
  }

 private:
  // What rank 0 says, once both have come here. Only between measurements.
  std::int64_t agree(std::int64_t value) {
    if (rank_ == 0) control_->agreed.store(value);
    wait_for_both();
    const std::int64_t agreed = control_->agreed.load();
    wait_for_both();
    return agreed;
  }
  void wait_for_both() {
    const int turn = ++turn_;
    control_->arrived.fetch_add(1);
    while (control_->arrived.load() < 2 * turn) {
    }
  }

  const int rank_;
  Control* const control_;
  float* const own_;
  float* const other_;
  const double budget_us_;
  std::ofstream out_;
  int turn_ = 0;
};

int run(const std::map<std::string, std::string>& options) {
  std::vector<std::int64_t> sizes;
  std::istringstream list(options.at("--sizes"));
  // Two floats are the least that two processes can share.
  for (std::string item; std::getline(list, item, ',');) {
    if (std::stoll(item) >= 8) sizes.push_back(std::stoll(item));
  }
  std::size_t bytes_max = kPageBytes;
  for (const std::int64_t bytes : sizes) {
    bytes_max = std::max(bytes_max, static_cast<std::size_t>(bytes));
  }
  auto* control = new (shared_memory<Control>(kPageBytes)) Control;
  // Side by side as the arena's blocks are, and as far apart (transport/arena.cc says why).
  constexpr std::size_t kApartBytes = 3 * kPageBytes;
  float* buffers[] = {shared_memory<float>(bytes_max + kApartBytes),
                      shared_memory<float>(bytes_max + kApartBytes)};
  const pid_t child = ::fork();
  if (child < 0) throw std::runtime_error("fork failed");
  if (child == 0) ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int rank = child == 0 ? 1 : 0;
  pin_to_core(rank);
  const Way ways[] = {{"ordinary stores", add_ordinary},
                      {"non-temporal stores to the other's", add_stream_other},
                      {"non-temporal stores to the other's, in blocks", add_blocks},
                      {"non-temporal stores", add_stream_both}};
  Limit limit(rank, control, buffers[rank], buffers[1 - rank], options.at("--out"),
              1000 * std::stod(options.at("--budget-ms")));
  for (const std::int64_t bytes : sizes) {
    for (const Way& way : ways) limit.size(bytes, way);
  }
  if (child == 0) std::_Exit(0);
  int status = 0;
  ::waitpid(child, &status, 0);
  return status == 0 ? 0 : 1;
}

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) {
  try {
    std::map<std::string, std::string> options;
    for (int i = 1; i + 1 < argc; i += 2) options[argv[i]] = argv[i + 1];
    return lockstep::bench::run(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "collectives_limit: %s\n", error.what());
    return 1;
  }
}
#endif  // HWY_ONCE

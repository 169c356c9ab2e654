#include "bench/collectives_loop.h"

#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <vector>

namespace lockstep::bench {
namespace {

using Clock = std::chrono::steady_clock;

// Long enough that reading the clock counts for nothing, short enough to show a disturbance.
constexpr double kBatch_us = 1000;
constexpr std::int64_t kCallsMax = 1 << 20;
constexpr std::int64_t kBatchesMin = 3;
constexpr std::int64_t kBatchesMax = 200;
// Small enough that sums over thousands of ranks are exact in f32.
constexpr std::int64_t kPeriod = 1021;

double us_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

struct Options {
  std::map<std::string, std::string> values;

  Options(int argc, char** argv) {
    for (int i = 1; i + 1 < argc; i += 2) values[argv[i]] = argv[i + 1];
  }
  const std::string& operator[](const std::string& name) const {
    const auto found = values.find(name);
    if (found == values.end()) throw std::runtime_error(name + " is missing");
    return found->second;
  }
  bool has(const std::string& name) const { return values.count(name) > 0; }
};

Collective parse_collective(const std::string& name) {
  const std::map<std::string, Collective> names = {{"all_reduce", Collective::all_reduce},
                                                   {"broadcast", Collective::broadcast},
                                                   {"all_gather", Collective::all_gather},
                                                   {"reduce_scatter", Collective::reduce_scatter}};
  const auto found = names.find(name);
  if (found == names.end()) throw std::runtime_error("unknown operation " + name);
  return found->second;
}

std::vector<std::int64_t> parse_sizes(const std::string& list) {
  std::vector<std::int64_t> sizes;
  std::istringstream stream(list);
  for (std::string item; std::getline(stream, item, ',');) sizes.push_back(std::stoll(item));
  if (sizes.empty()) throw std::runtime_error("--sizes is empty");
  return sizes;
}

class Loop {
 public:
  Loop(System& system, const Options& options)
      : system_(system),
        options_(options),
        out_((options["--out"] + "." + std::to_string(system.rank())).c_str()) {
    if (!out_) throw std::runtime_error("cannot write " + options["--out"]);
    agreed_ = {system.allocate(kAgreedBytes, Memory::library), nullptr, system.size()};
  }

  void sizes() {
    const Collective collective = parse_collective(options_["--operation"]);
    const Memory memory = options_["--memory"] == "own" ? Memory::own : Memory::library;
    const std::vector<std::int64_t> all = parse_sizes(options_["--sizes"]);
    const auto bytes_max = static_cast<std::size_t>(*std::max_element(all.begin(), all.end()));
    Buffers buffers;
    buffers.whole = system_.allocate(bytes_max, memory);
    if (collective == Collective::all_gather || collective == Collective::reduce_scatter) {
      buffers.part = system_.allocate(bytes_max / static_cast<std::size_t>(system_.size()), memory);
    }
    for (const std::int64_t bytes : all) {
      buffers.whole_count = bytes / static_cast<std::int64_t>(sizeof(float));
      size(collective, buffers, bytes);
    }
  }

  void wait() {
    const double seconds = std::stod(options_["--wait-s"]);
    for (int i = 0; i < 10; ++i) agree(1);
    if (system_.rank() == 0) std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    const double cpu_s = cpu_seconds();
    const auto start = Clock::now();
    agree(1);
    out_ << "{\"version\": \"" << system_.version() << "\", \"waited_s\": " << us_since(start) / 1e6
         << ", \"cpu_s\": " << cpu_seconds() - cpu_s << "}\n";
  }

 private:
  static constexpr std::size_t kAgreedBytes = 4096 * sizeof(float);

  static double cpu_seconds() {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    const auto seconds = [](const timeval& t) {
      return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
    };
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
  }

  // What rank 0 says, on every rank; a whole number below 2^24.
  std::int64_t agree(std::int64_t value) {
    std::fill_n(agreed_.whole, system_.size(),
                system_.rank() == 0 ? static_cast<float>(value) : 0.0F);
    system_.call(Collective::all_reduce, agreed_);
    return static_cast<std::int64_t>(agreed_.whole[0]);
  }

  double batch_us(Collective collective, const Buffers& buffers, std::int64_t calls) {
    const auto start = Clock::now();
    for (std::int64_t i = 0; i < calls; ++i) system_.call(collective, buffers);
    return us_since(start);
  }

  void size(Collective collective, const Buffers& buffers, std::int64_t bytes) {
    const std::int64_t parts = buffers.whole_count / system_.size();
    // Zeros stay zeros, however often they are summed.
    std::fill_n(buffers.whole, buffers.whole_count, 0.0F);
    if (buffers.part != nullptr) std::fill_n(buffers.part, parts, 0.0F);
    batch_us(collective, buffers, 1);
    std::int64_t calls = 1;
    double warm_us = 0;
    for (std::int64_t next = 1; next != 0;) {
      calls = next;
      warm_us = batch_us(collective, buffers, calls);
      next = agree(warm_us >= kBatch_us || calls >= kCallsMax ? 0 : 2 * calls);
    }
    const double budget_us = 1000 * std::stod(options_["--budget-ms"]);
    const std::int64_t batches =
        agree(std::clamp(static_cast<std::int64_t>(budget_us / warm_us), kBatchesMin, kBatchesMax));
    std::vector<double> us;
    us.reserve(static_cast<std::size_t>(batches));
    const std::int64_t left_before = bytes_left();
    for (std::int64_t i = 0; i < batches; ++i) {
      us.push_back(batch_us(collective, buffers, calls) / static_cast<double>(calls));
    }
    agree(0);
    const double left = static_cast<double>(bytes_left() - left_before);
    verify(collective, buffers, bytes);
    write(bytes, calls, us, left / static_cast<double>(calls * batches));
  }

  void write(std::int64_t bytes, std::int64_t calls, const std::vector<double>& us, double left) {
    out_ << "{\"version\": \"" << system_.version() << "\", \"bytes\": " << bytes
         << ", \"calls\": " << calls << ", \"sent_bytes\": " << left << ", \"us\": [";
    for (std::size_t i = 0; i < us.size(); ++i) out_ << (i == 0 ? "" : ", ") << us[i];
    out_ << "]}" << std::endl;
  }

  // Bytes that have left by the interface so far.
  std::int64_t bytes_left() const {
    if (!options_.has("--interface")) return 0;
    const std::string path = "/sys/class/net/" + options_["--interface"] + "/statistics/tx_bytes";
    std::ifstream file(path);
    std::int64_t bytes = 0;
    if (!(file >> bytes)) throw std::runtime_error("cannot read " + path);
    return bytes;
  }

  void verify(Collective collective, const Buffers& buffers, std::int64_t bytes) {
    const int rank = system_.rank();
    const std::int64_t ranks = system_.size();
    const std::int64_t parts = buffers.whole_count / ranks;
    const std::int64_t own = rank * parts;
    const auto fill = [&](float* at, std::int64_t first, std::int64_t count) {
      for (std::int64_t i = 0; i < count; ++i) {
        at[i] = static_cast<float>((first + i) % kPeriod + rank);
      }
    };
    fill(buffers.whole, 0, buffers.whole_count);
    if (buffers.part != nullptr) fill(buffers.part, own, parts);
    system_.call(collective, buffers);
    const bool into_part = collective == Collective::reduce_scatter;
    const float* result = into_part ? buffers.part : buffers.whole;
    const std::int64_t first = into_part ? own : 0;
    const std::int64_t count = into_part ? parts : buffers.whole_count;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t pattern = (first + i) % kPeriod;
      std::int64_t expected = pattern;  // broadcast: as on rank 0
      if (collective == Collective::all_gather) expected += i / parts;
      if (collective == Collective::all_reduce || into_part) {
        expected = ranks * pattern + ranks * (ranks - 1) / 2;
      }
      if (result[i] == static_cast<float>(expected)) continue;
      std::ostringstream what;
      what << "wrong result on rank " << rank << " at " << bytes << " bytes: element " << i
           << " is " << result[i] << " instead of " << expected;
      throw std::runtime_error(what.str());
    }
  }

  System& system_;
  const Options& options_;
  std::ofstream out_;
  Buffers agreed_;
};

}  // namespace

float* ordinary_memory(std::size_t bytes) {
  constexpr std::size_t kAlignment = 64;
  const std::size_t whole = (std::max<std::size_t>(bytes, 1) + kAlignment - 1) & ~(kAlignment - 1);
  void* memory = std::aligned_alloc(kAlignment, whole);
  if (memory == nullptr) throw std::bad_alloc();
  std::memset(memory, 0, whole);
  return static_cast<float*>(memory);
}

void pin_to_core(int local_rank) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (::sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return;
  int skip = local_rank % CPU_COUNT(&allowed);
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &allowed) || skip-- > 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    ::sched_setaffinity(0, sizeof(one), &one);
    return;
  }
}

int measure(System& system, int argc, char** argv) {
  try {
    const Options options(argc, argv);
    Loop loop(system, options);
    if (options.has("--wait-s")) {
      loop.wait();
    } else {
      loop.sizes();
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
    return 1;
  }
}

}  // namespace lockstep::bench

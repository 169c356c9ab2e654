#include "lockstep/tune/measure.h"

#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <functional>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/env/cpu.h"
#include "lockstep/env/fd.h"
#include "lockstep/group/group.h"
#include "lockstep/kernels/reduce.h"
#include "lockstep/transport/tcp/socket.h"

namespace lockstep {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRanks = 2;
// Of so many samples the lower decile counts: what else runs here only makes things slower.
constexpr int kSamples = 31;
constexpr int kCounts = 3;
constexpr int kPings = 100;
constexpr int kBurst = 64;
constexpr std::int64_t kShortBytes = 1 << 20;
constexpr std::int64_t kLongBytes = 9 << 20;
constexpr std::int64_t kMemoryBytes = 4 << 20;

double sample_us(const std::function<void()>& body) {
  std::vector<double> took;
  for (int i = 0; i < kSamples + 2; ++i) {
    const auto start = Clock::now();
    body();
    const std::chrono::duration<double, std::micro> one = Clock::now() - start;
    if (i >= 2) took.push_back(one.count());  // the first ones warm up
  }
  std::ranges::nth_element(took, took.begin() + kCounts);
  return took[kCounts];
}

TensorView bytes_of(std::vector<std::byte>& memory, std::int64_t count) {
  return {memory.data(), count, DType::u8};
}

// What both ranks do together; rank 0's clock counts.
void measure_messages(Group& group, Prices& prices) {
  std::vector<std::byte> out(kLongBytes), in(kLongBytes);
  const int peer = 1 - group.rank();
  const double ping_us = sample_us([&] {
    for (int i = 0; i < kPings; ++i) {
      if (group.rank() == 0) group.send(bytes_of(out, 1), peer);
      group.receive(bytes_of(in, 1), peer);
      if (group.rank() == 1) group.send(bytes_of(out, 1), peer);
    }
  });
  const double burst_us = sample_us([&] {
    std::vector<Work> under_way;
    for (int i = 0; i < kBurst; ++i) {
      under_way.push_back(group.rank() == 0 ? group.async().send(bytes_of(out, 1), peer)
                                            : group.async().receive(bytes_of(in, 1), peer));
    }
    for (Work& work : under_way) work.wait();
    if (group.rank() == 1) group.send(bytes_of(out, 1), peer);
    if (group.rank() == 0) group.receive(bytes_of(in, 1), peer);
  });
  // Both ways at once, as most algorithms have it.
  const auto exchange_us = [&](std::int64_t count) {
    return sample_us([&] {
      Work receive = group.async().receive(bytes_of(in, count), peer);
      group.async().send(bytes_of(out, count), peer).wait();
      receive.wait();
    });
  };
  const double short_us = exchange_us(kShortBytes);
  const double long_us = exchange_us(kLongBytes);
  const double one_way_us = ping_us / (2 * kPings);
  // A burst is an answer and kBurst messages, of which the last one's way is not hidden. Who takes
  // a message does about as much as its sender, so that is at most half of the way.
  prices.message_us = std::clamp((burst_us - 2 * one_way_us) / (kBurst - 1), 0.0, one_way_us / 2);
  prices.latency_us = one_way_us - prices.message_us;
  prices.byte_us =
      std::max(0.0, (long_us - short_us) / static_cast<double>(kLongBytes - kShortBytes));
}

void measure_barrier(Group& group, Prices& prices) {
  prices.barrier_us = sample_us([&] {
                        for (int i = 0; i < kPings; ++i) group.barrier();
                      }) /
                      kPings;
}

void measure_memory(Prices& prices) {
  const auto count = kMemoryBytes / static_cast<std::int64_t>(sizeof(float));
  std::vector<float> left(static_cast<std::size_t>(count), 1), right(left), sum(left);
  const auto raw = [](std::vector<float>& values) {
    return reinterpret_cast<std::byte*>(values.data());
  };
  std::byte* const destination = raw(sum);
  const std::array sources = {Source{raw(left), false, 0}, Source{raw(right), false, 0}};
  prices.reduced_byte_us = sample_us([&] {
                             reduce({&destination, 1}, sources, count, DType::f32, Reduce::sum, 1);
                           }) /
                           static_cast<double>(kMemoryBytes * 2);
  prices.copied_byte_us =
      sample_us(
          [&] { copy_bytes(destination, raw(left), static_cast<std::size_t>(kMemoryBytes)); }) /
      static_cast<double>(kMemoryBytes);
}

struct Meeting {
  Fd listener;
  std::uint16_t port = 0;
};

Meeting make_meeting() {
  Meeting meeting{listen_on("127.0.0.1", 0)};
  meeting.port = local_address(meeting.listener).port;
  return meeting;
}

Group meet(Meeting& meeting, int rank, const std::string& secret, Transport transport) {
  Settings settings;
  settings.rank = rank;
  settings.world_size = kRanks;
  settings.master_port = meeting.port;
  settings.secret = secret;
  settings.transport = transport;
  settings.join_timeout = settings.operation_timeout = std::chrono::seconds(60);
  // The other's copy would keep the port open when rank 0 is gone.
  if (rank == 0) settings.store_fd = meeting.listener.release();
  if (rank != 0) meeting.listener = Fd();
  return Group(settings);
}

Prices measure(int rank, const std::string& secret, Meeting& tcp, Meeting& shared) {
  pin_this_thread(cores_of_rank(allowed_cores(), rank, kRanks));
  Prices prices;
  {
    Group group = meet(tcp, rank, secret, Transport::tcp);
    measure_messages(group, prices);
  }
  {
    Group group = meet(shared, rank, secret, Transport::shm);
    measure_barrier(group, prices);
    if (rank == 0) measure_memory(prices);
    group.barrier();  // the other's core is idle until here
  }
  return prices;
}

std::string random_secret() {
  std::array<std::uint8_t, 16> bytes;
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    fail_errno(errno, "cannot get random bytes");
  }
  return to_hex(bytes);
}

[[noreturn]] void be_rank_one(pid_t parent, const std::string& secret, Meeting& tcp,
                              Meeting& shared) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  try {
    measure(1, secret, tcp, shared);
    ::_exit(0);
  } catch (const std::exception& error) {
    fmt::print(stderr, "lockstep tune: rank 1: {}\n", error.what());
    ::_exit(1);
  }
}

}  // namespace

Prices measure_prices() {
  const std::string secret = random_secret();
  Meeting tcp = make_meeting();
  Meeting shared = make_meeting();
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) fail_errno(errno, "cannot start a second process");
  if (child == 0) be_rank_one(parent, secret, tcp, shared);
  // However this ends, the other process ends with it.
  struct Reaper {
    pid_t child;
    ~Reaper() {
      ::kill(child, SIGKILL);
      while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
      }
    }
  } reaper{child};
  return measure(0, secret, tcp, shared);
}

}  // namespace lockstep

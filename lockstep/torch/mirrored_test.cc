#include "lockstep/torch/mirrored.h"

#include <ATen/Parallel.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/env/cpu.h"
#include "lockstep/torch/distributed_data_parallel.h"
#include "lockstep/torch/sync_batch_norm.h"
#include "lockstep/torch/tensor.h"
#include "lockstep/transport/tcp/socket.h"

namespace lockstep {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kBatch = 24;

struct Net : torch::nn::Module {
  Net() {
    convolution = register_module("convolution", torch::nn::Conv2d(1, 4, 3));
    norm = register_module("norm", SyncBatchNorm(4));
    out = register_module("out", torch::nn::Linear(4 * 6 * 6, 3));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return out(torch::relu(norm(convolution(x))).flatten(1));
  }
  torch::nn::Conv2d convolution{nullptr};
  SyncBatchNorm norm{nullptr};
  torch::nn::Linear out{nullptr};
};

// Rank r begins with weights of its own, so that rank 0's must reach all. Not LibTorch's generator,
// which the threads would share.
std::shared_ptr<Net> net_of(int rank) {
  auto net = std::make_shared<Net>();
  const torch::NoGradGuard no_grad;
  for (auto& parameter : net->parameters()) {
    const auto numbers = torch::arange(parameter.numel(), torch::kFloat) * 1.3 + rank;
    parameter.copy_(torch::sin(numbers).view(parameter.sizes()) * 0.3);
  }
  return net;
}

std::uint64_t train(Group& group) {
  const auto net = net_of(group.rank());
  convert_sync_batch_norm(net, group);
  DistributedDataParallel ddp(net, group, {300});
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  const int rows = kBatch / group.size();
  for (int step = 0; step < 10; ++step) {
    optimizer.zero_grad();
    const auto batch = torch::sin(torch::arange(kBatch * 64, torch::kFloat) * (0.37 + step));
    const auto part = batch.view({kBatch, 1, 8, 8}).narrow(0, group.rank() * rows, rows);
    const auto targets = torch::arange(kBatch).remainder(3).narrow(0, group.rank() * rows, rows);
    torch::nn::functional::cross_entropy(net->forward(part), targets).backward();
    optimizer.step();
  }
  return parameter_checksum(*net, true);
}

class Mirrored : public ::testing::Test {
 protected:
  Mirrored() {
    ::setenv("LOCKSTEP_RECORD", "none", 1);
    ::unsetenv("OMP_NUM_THREADS");
  }
};

TEST_F(Mirrored, GivesWhatEachRankReturned) {
  EXPECT_THAT(mirrored(3, [](Group& group) { return 10 * group.rank(); }), ElementsAre(0, 10, 20));
  EXPECT_THAT(mirrored(2, [](Group& group) { return group.rank() == 1; }),
              ElementsAre(false, true));
  const auto pointers = mirrored(2, [](Group&) { return std::make_unique<int>(1); });
  EXPECT_EQ(*pointers[1], 1);
  torch::Tensor sum;
  mirrored(4, [&](Group& group) {
    torch::Tensor tensor = torch::full({3}, group.rank());
    group.all_reduce(tensor);
    if (group.rank() == 3) sum = tensor;
  });
  EXPECT_TRUE(torch::equal(sum, torch::full({3}, 6)));
}

// Runs as a process of its own, in the environment that checksums_of_processes gives it.
TEST(Process, DISABLED_OfAJob) {
  Group group = init();
  std::printf("checksum %016lx\n", static_cast<unsigned long>(train(group)));
}

std::vector<std::string> checksums_of_processes(int ranks) {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe");
  const std::uint16_t port = local_address(listen_on("127.0.0.1", 0)).port;
  std::vector<FILE*> processes;
  for (int rank = 0; rank < ranks; ++rank) {
    // As mirrored() sets them.
    const int threads = threads_per_rank(usable_core_count(), ranks);
    const std::string command = fmt::format(
        "RANK={} WORLD_SIZE={} MASTER_ADDR=127.0.0.1 MASTER_PORT={} OMP_NUM_THREADS={} "
        "OPENBLAS_NUM_THREADS={} '{}' --gtest_also_run_disabled_tests "
        "--gtest_filter='Process.*'",
        rank, ranks, port, threads, ranks > 1 ? 1 : threads, program);
    processes.push_back(::popen(command.c_str(), "r"));
  }
  std::vector<std::string> checksums;
  for (FILE* process : processes) {
    std::string output;
    char buffer[4096];
    while (std::fgets(buffer, sizeof(buffer), process) != nullptr) output += buffer;
    EXPECT_EQ(::pclose(process), 0) << output;
    const auto at = output.find("checksum ");
    checksums.push_back(at == std::string::npos ? output : output.substr(at + 9, 16));
  }
  return checksums;
}

TEST_F(Mirrored, TrainsToTheSameBitsAsProcesses) {
  for (const int ranks : {1, 2, 3, 4}) {
    std::vector<std::string> threads;
    for (const std::uint64_t checksum : mirrored(ranks, train)) {
      threads.push_back(fmt::format("{:016x}", checksum));
    }
    EXPECT_THAT(threads, Each(threads[0]));
    EXPECT_EQ(threads, checksums_of_processes(ranks)) << ranks;
  }
}

int threads_of_this_process() {
  int count = 0;
  for ([[maybe_unused]] const auto& thread :
       std::filesystem::directory_iterator("/proc/self/task")) {
    ++count;
  }
  return count;
}

void compute() {
  const auto image = torch::ones({8, 8, 32, 32});
  torch::conv2d(image, torch::ones({8, 8, 3, 3}).requires_grad_(true)).sum().backward();
  torch::mm(torch::ones({300, 300}), torch::ones({300, 300}));
  (torch::ones({1 << 20}) + 1).sum();
}

int openblas_threads() {
  auto* const get = reinterpret_cast<int (*)()>(::dlsym(RTLD_DEFAULT, "openblas_get_num_threads"));
  return get == nullptr ? 1 : get();
}

TEST_F(Mirrored, ThreadsNeverOutnumberTheSharesOfTheRanks) {
  compute();
  const int torch_before = at::get_num_threads();
  at::set_num_threads(torch_before);  // makes a pool (pthreadpool) that nothing here computes with
  const int before = threads_of_this_process();
  const int blas_before = openblas_threads();
  for (const int ranks : {1, 2, 3, 4}) {
    const int share = threads_per_rank(usable_core_count(), ranks);
    // A rank's thread and its OpenMP team; of more than one rank the progress thread, and the
    // store.
    // And that pool grows by as many.
    const int allowed =
        before + ranks * share + (ranks > 1 ? ranks + 1 : 0) + std::max(0, share - torch_before);
    const auto counts = mirrored(ranks, [&](Group& group) {
      EXPECT_EQ(at::get_num_threads(), share);
      EXPECT_EQ(openblas_threads(), ranks > 1 ? 1 : blas_before);
      compute();
      group.barrier();
      const int count = threads_of_this_process();
      group.barrier();
      return count;
    });
    EXPECT_THAT(counts, Each(::testing::Le(allowed))) << ranks;
    EXPECT_EQ(at::get_num_threads(), torch_before);
    EXPECT_EQ(openblas_threads(), blas_before);
  }
  EXPECT_LE(threads_of_this_process(), before);
}

TEST_F(Mirrored, TheUsersNumberOfThreadsCounts) {
  ::setenv("OMP_NUM_THREADS", "3", 1);
  EXPECT_THAT(mirrored(2, [](Group&) { return at::get_num_threads(); }), Each(3));
  ::unsetenv("OMP_NUM_THREADS");
}

// As every LibTorch since 1.10 keeps it, whatever the function for it is called.
bool autocast_on() {
  return !c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::AutocastCPU);
}
void set_autocast(bool on) {
  c10::impl::tls_set_dispatch_key_excluded(c10::DispatchKey::AutocastCPU, !on);
}

TEST_F(Mirrored, EachRankHasTheCallersModesAndThenItsOwn) {
  const auto modes = [](Group& group) {
    const bool began = at::GradMode::is_enabled();
    const bool autocast = autocast_on();
    if (group.rank() == 0) at::GradMode::set_enabled(!began);
    group.barrier();
    return std::vector<bool>{began, autocast, at::GradMode::is_enabled()};
  };
  using Modes = std::vector<bool>;
  EXPECT_THAT(mirrored(2, modes), ElementsAre(Modes{true, false, false}, Modes{true, false, true}));
  EXPECT_TRUE(at::GradMode::is_enabled());
  const torch::NoGradGuard no_grad;
  set_autocast(true);
  const auto seen = mirrored(2, modes);
  set_autocast(false);
  EXPECT_THAT(seen, ElementsAre(Modes{false, true, true}, Modes{false, true, false}));
}

TEST_F(Mirrored, TheFirstFailureEndsAllAndComesOut) {
  ::testing::internal::CaptureStderr();
  try {
    mirrored(3, [](Group& group) {
      const auto net = net_of(0);
      DistributedDataParallel ddp(net, group);
      if (group.rank() == 1) torch::ones({2, 3}).mm(torch::ones({2, 3}));
      convert_sync_batch_norm(net, group);
      net->forward(torch::ones({2, 1, 8, 8})).sum().backward();
    });
    ADD_FAILURE() << "no error";
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("cannot be multiplied"));
  }
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("rank 1 of 3: error: "));
  EXPECT_THROW(mirrored(0, [](Group&) { return 1; }), Error);
  EXPECT_THAT(mirrored(2, [](Group& group) { return group.size(); }), Each(2));  // as before
}

// In the middle of a backward pass, where the reducer breaks the group before the exception leaves.
TEST_F(Mirrored, AnExceptionInsideBackwardIsTheCause) {
  struct OwnMistake : std::runtime_error {
    using std::runtime_error::runtime_error;
  };
  ::testing::internal::CaptureStderr();
  EXPECT_THROW(mirrored(2,
                        [](Group& group) {
                          const auto net = net_of(0);
                          convert_sync_batch_norm(net, group);
                          DistributedDataParallel ddp(net, group, {1});
                          if (group.rank() == 1) {
                            net->convolution->weight.register_hook(
                                [](const torch::Tensor&) { throw OwnMistake("in a hook"); });
                          }
                          net->forward(torch::ones({2, 1, 8, 8})).sum().backward();
                        }),
               OwnMistake);
  ::testing::internal::GetCapturedStderr();
}

}  // namespace
}  // namespace lockstep

// One rank of bench/scaling. Trains a model on random samples and prints one line of JSON.
//   scaling_worker first bare|group MODEL BATCH       when the first step was done
//   scaling_worker blocks MODEL BATCH STEPS BLOCKS [BUCKET_BYTES]
//                                                     samples per second in blocks of steps
// Blocks take turns, so that a machine whose speed drifts is as fast for one kind as for the other:
//   group   gradients averaged over the ranks in every step
//   apart   the same model without hooks on all ranks at once, nothing synchronized
//   barrier the same with a barrier after each step, and nothing reduced
//   alone   the same on rank 0, while the other ranks sleep
#include <fmt/format.h>
#include <torch/nn/functional/loss.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/torch.h"
#include "lockstep/train/model.h"
#include "lockstep/train/process.h"

namespace {

using Clock = std::chrono::steady_clock;

double seconds(Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

// A model, its optimizer, and samples to step on.
class Job {
 public:
  Job(const std::string& model, std::int64_t batch) : batch_(batch) {
    torch::manual_seed(1);
    lockstep::train::TrainSettings settings;
    settings.model = model;
    const bool cifar = model == "resnet18";
    const lockstep::train::InputShape shape{cifar ? 3 : 1, cifar ? 32 : 28, cifar ? 32 : 28, 10};
    model_ = lockstep::train::make_model(settings, shape);
    optimizer_ = std::make_unique<torch::optim::SGD>(model_->parameters(),
                                                     torch::optim::SGDOptions(0.01).momentum(0.9));
    input_ = torch::randn({batch, shape.channels, shape.height, shape.width});
    target_ = torch::randint(10, {batch}, torch::kLong);
  }

  std::shared_ptr<torch::nn::Module> module() const { return model_; }

  void step() {
    optimizer_->zero_grad();
    torch::nn::functional::cross_entropy(model_->forward(input_), target_).backward();
    optimizer_->step();
  }

  // Samples per second over that many steps, with something after each.
  double block(
      int steps, const std::function<void()>& after = [] {}) {
    const auto start = Clock::now();
    for (int i = 0; i < steps; ++i) {
      step();
      after();
    }
    return static_cast<double>(batch_ * steps) / seconds(Clock::now() - start);
  }

 private:
  const std::int64_t batch_;
  std::shared_ptr<lockstep::train::Model> model_;
  std::unique_ptr<torch::optim::SGD> optimizer_;
  torch::Tensor input_, target_;
};

void say(const std::string& line) {
  std::fwrite(line.data(), 1, line.size(), stdout);
}

void first_step(bool in_group, const std::string& model, std::int64_t batch) {
  std::optional<lockstep::Group> group;
  if (in_group) group.emplace(lockstep::init());
  Job job(model, batch);
  std::optional<lockstep::DistributedDataParallel> ddp;
  if (group) ddp.emplace(job.module(), *group);
  job.step();
  say(fmt::format("{{\"first_step_at\": {:.6f}}}\n", seconds(Clock::now().time_since_epoch())));
}

double sum_over_ranks(lockstep::Group& group, double value) {
  group.all_reduce({&value, 1, lockstep::DType::f64});
  return value;
}

void blocks(const std::string& model, std::int64_t batch, int steps, int count,
            const lockstep::DistributedOptions& options) {
  lockstep::Group group = lockstep::init();
  Job together(model, batch);
  Job apart(model, batch);
  lockstep::DistributedDataParallel ddp(together.module(), group, options);
  for (int i = 0; i < 3; ++i) {
    together.step();
    apart.step();
  }
  double exposed_ms = 0;
  const std::function<double()> kinds[] = {
      [&] {
        exposed_ms = 0;
        return together.block(steps,
                              [&] { exposed_ms += ddp.last_step().exposed_comm_ms / steps; });
      },
      [&] { return apart.block(steps); },
      [&] { return apart.block(steps, [&] { group.barrier(); }); },
      [&] { return group.rank() == 0 ? apart.block(steps) : 0; },
  };
  constexpr int kKinds = 4;
  for (int i = 0; i < count; ++i) {
    double samples_per_s[kKinds];
    for (int turn = 0; turn < kKinds; ++turn) {
      // Each kind comes after each other one as often, and finds all ranks awake and warm.
      const int kind = (i + turn * (i % 2 == 0 ? 1 : kKinds - 1)) % kKinds;
      apart.step();
      together.step();
      group.barrier();
      samples_per_s[kind] = sum_over_ranks(group, kinds[kind]());
    }
    if (group.rank() == 0) {
      say(fmt::format(
          "{{\"group\": {:.3f}, \"apart\": {:.3f}, \"barrier\": {:.3f}, \"alone\": {:.3f}, "
          "\"exposed_comm_ms\": {:.4f}}}\n",
          samples_per_s[0], samples_per_s[1], samples_per_s[2], samples_per_s[3], exposed_ms));
    }
  }
}

int run(const std::vector<std::string>& arguments) {
  const char* threads = std::getenv("OMP_NUM_THREADS");
  lockstep::train::use_threads(threads == nullptr ? 1 : std::atoi(threads));
  lockstep::train::keep_freed_memory();
  if (arguments.size() == 4 && arguments[0] == "first") {
    first_step(arguments[1] == "group", arguments[2], std::stoll(arguments[3]));
  } else if (arguments.size() >= 5 && arguments[0] == "blocks") {
    lockstep::DistributedOptions options;
    if (arguments.size() == 6) options.bucket_bytes_max = std::stoll(arguments[5]);
    blocks(arguments[1], std::stoll(arguments[2]), std::stoi(arguments[3]), std::stoi(arguments[4]),
           options);
  } else {
    std::fputs("scaling_worker: see the head of scaling_worker.cc\n", stderr);
    return 2;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "scaling_worker: %s\n", error.what());
    return 1;
  }
}

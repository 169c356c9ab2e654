#include "bench/ddp_loop.h"

#include <malloc.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <vector>

#include "lockstep/train/model.h"
#include "lockstep/train/process.h"

namespace lockstep::bench {

namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// A thousand small parameters side by side: what is done for each of them shows.
class ManySmall final : public train::Model {
 public:
  ManySmall() : parts_(register_module("parts", torch::nn::ModuleList())) {
    for (int i = 0; i < 500; ++i) parts_->push_back(torch::nn::Linear(kSide, kSide));
  }

  torch::Tensor forward(torch::Tensor input) override {
    torch::Tensor sum;
    for (const auto& part : *parts_) {
      const auto output = part->as<torch::nn::Linear>()->forward(input);
      sum = sum.defined() ? sum + output : output;
    }
    return sum;
  }

  static constexpr int kSide = 32;

 private:
  torch::nn::ModuleList parts_;
};

constexpr int kClasses = 10;
constexpr int kWords = 4096;
constexpr int kWordsOfSample = 64;

std::shared_ptr<train::Model> make_model(const std::string& name) {
  if (name == "small") return std::make_shared<ManySmall>();
  train::TrainSettings settings;
  settings.model = name;
  settings.layers = 4;
  settings.width = 256;
  settings.heads = 4;
  settings.vocabulary = kWords;
  settings.length = kWordsOfSample;
  if (name == "gpt") return train::make_model(settings, {});
  const int side = name == "resnet18" ? 32 : 28;
  return train::make_model(settings, {name == "resnet18" ? 3 : 1, side, side, kClasses});
}

int rank_variable() {
  const char* rank = std::getenv("RANK");
  return rank == nullptr ? 0 : std::atoi(rank);
}

// What the model takes, and a target for each row that it gives.
std::pair<torch::Tensor, torch::Tensor> make_samples(const std::string& model, std::int64_t batch) {
  if (model == "gpt") {
    return {torch::randint(kWords, {batch, kWordsOfSample}, torch::kLong),
            torch::randint(kWords, {batch * kWordsOfSample}, torch::kLong)};
  }
  const auto target = torch::randint(kClasses, {batch}, torch::kLong);
  if (model == "small") return {torch::randn({batch, ManySmall::kSide}), target};
  if (model == "resnet18") return {torch::randn({batch, 3, 32, 32}), target};
  return {torch::randn({batch, 1, 28, 28}), target};
}

// A model, its optimizer, samples to step on, and how its gradients are averaged, if they are.
class Job {
 public:
  Job(const std::string& model, std::int64_t batch) {
    torch::manual_seed(1);
    model_ = make_model(model);
    // A rate so low that no step differs from another: parameters that die leave denormal numbers.
    optimizer_ = std::make_unique<torch::optim::SGD>(model_->parameters(),
                                                     torch::optim::SGDOptions(1e-4).momentum(0.9));
    // The parameters are equal on all ranks, their samples are not.
    torch::manual_seed(2 + rank_variable());
    std::tie(input_, target_) = make_samples(model, batch);
  }

  void average(TrainingSystem& system, const std::string& kind) {
    averaging_ = system.average(kind, model_);
  }

  void step() {
    optimizer_->zero_grad();
    torch::nn::functional::cross_entropy(model_->forward(input_), target_).backward();
    if (averaging_) averaging_->finish();
    optimizer_->step();
  }

  // A step; milliseconds from the moment when all gradients were computed until they are averaged.
  double end_ms_of_step() {
    optimizer_->zero_grad();
    const auto output = model_->forward(input_);
    Clock::time_point computed;
    // Before any parameter has its gradient, so that this callback is the first of those that run
    // at the end of the pass.
    output.register_hook([&computed](const torch::Tensor&) {
      torch::autograd::Engine::get_default_engine().queue_callback(
          [&computed] { computed = Clock::now(); });
    });
    torch::nn::functional::cross_entropy(output, target_).backward();
    if (averaging_) averaging_->finish();
    const double end_ms = ms_since(computed);
    optimizer_->step();
    return end_ms;
  }

  std::optional<double> exposed_ms() const {
    return averaging_ ? averaging_->exposed_ms() : std::nullopt;
  }

  std::vector<torch::Tensor> parameters() const { return model_->parameters(); }

  // Equal on all ranks if gradients were averaged.
  double gradient_norm() const {
    double squares = 0;
    for (const auto& parameter : parameters()) {
      squares += parameter.grad().to(torch::kDouble).square().sum().item<double>();
    }
    return std::sqrt(squares);
  }

 private:
  std::shared_ptr<train::Model> model_;
  std::unique_ptr<torch::optim::SGD> optimizer_;
  torch::Tensor input_, target_;
  std::unique_ptr<Averaging> averaging_;
};

bool is_of_system(const std::string& kind) {
  return kind != "apart" && kind != "barrier" && kind != "alone";
}

nlohmann::json about(const Job& job, const std::string& version) {
  std::int64_t elements = 0;
  const auto parameters = job.parameters();
  for (const auto& parameter : parameters) elements += parameter.numel();
  return {{"version", version}, {"parameters", elements}, {"tensors", parameters.size()}};
}

class Worker {
 public:
  Worker(const std::function<std::unique_ptr<TrainingSystem>()>& connect,
         std::vector<std::string> arguments)
      : connect_(connect), arguments_(std::move(arguments)) {
    out_.open(argument(0) + "." + std::to_string(rank_variable()));
  }

  void run() {
    const std::string& mode = argument(1);
    train::use_threads(1);
    // What a program is given by default is what its memory is judged by.
    if (mode != "memory") train::keep_freed_memory();
    if (mode == "blocks") return blocks();
    if (mode == "first") return first();
    if (mode == "memory") return memory();
    if (mode == "end") return end();
    throw std::runtime_error("no mode '" + mode + "'");
  }

 private:
  const std::string& argument(std::size_t index) const {
    if (index >= arguments_.size()) throw std::runtime_error("usage: the head of ddp_loop.h");
    return arguments_[index];
  }

  std::vector<std::string> kinds(std::size_t index) const {
    std::vector<std::string> kinds;
    std::istringstream text(argument(index));
    for (std::string kind; std::getline(text, kind, ',');) kinds.push_back(kind);
    return kinds;
  }

  void say(const nlohmann::json& row) { out_ << row.dump() << std::endl; }

  Job make_job(const std::string& kind) {
    Job job(argument(2), std::stoll(argument(3)));
    if (!is_of_system(kind)) return job;
    if (!system_) system_ = connect_();
    job.average(*system_, kind);
    return job;
  }

  std::string version() const { return system_ ? system_->version() : ""; }

  // One job for each way of averaging, and one for all kinds without.
  std::map<std::string, Job> jobs_of(const std::vector<std::string>& kinds) {
    system_ = connect_();
    std::map<std::string, Job> jobs;
    jobs.emplace("", make_job("apart"));
    for (const auto& kind : kinds) {
      if (is_of_system(kind)) jobs.emplace(kind, make_job(kind));
    }
    for (int i = 0; i < 2; ++i) {
      for (auto& [kind, job] : jobs) job.step();
    }
    return jobs;
  }

  void blocks() {
    const int steps = std::stoi(argument(4)), rounds = std::stoi(argument(5));
    const auto kinds = this->kinds(6);
    auto jobs = jobs_of(kinds);
    const std::size_t count = kinds.size();
    auto head = about(jobs.at(""), version());
    for (const auto& [kind, job] : jobs) head["gradient_norms"][kind] = job.gradient_norm();
    say(head);
    for (std::size_t round = 0; round < static_cast<std::size_t>(rounds); ++round) {
      nlohmann::json row;
      for (std::size_t turn = 0; turn < count; ++turn) {
        // Each kind comes after each other one as often.
        const auto& kind = kinds[(round + turn * (round % 2 == 0 ? 1 : count - 1)) % count];
        block(kind, jobs.at(is_of_system(kind) ? kind : ""), steps, row);
      }
      say(row);
    }
  }

  void block(const std::string& kind, Job& job, int steps, nlohmann::json& row) {
    // All ranks are awake and find the job in their caches.
    job.step();
    system_->barrier();
    if (kind == "alone" && system_->rank() != 0) return;
    const auto start = Clock::now();
    std::optional<double> exposed_ms;
    for (int i = 0; i < steps; ++i) {
      job.step();
      if (kind == "barrier") system_->barrier();
      if (const auto ms = job.exposed_ms()) exposed_ms = exposed_ms.value_or(0) + *ms;
    }
    row["ms"][kind] = ms_since(start) / steps;
    if (exposed_ms) row["exposed_ms"][kind] = *exposed_ms / steps;
  }

  void first() {
    constexpr int kLaterSteps = 5;
    Job job = make_job(argument(4));
    const auto start = Clock::now();
    job.step();
    const double first_ms = ms_since(start);
    const std::chrono::duration<double> done_at = Clock::now().time_since_epoch();
    std::vector<double> later_ms;
    for (int i = 0; i < kLaterSteps; ++i) {
      const auto later = Clock::now();
      job.step();
      later_ms.push_back(ms_since(later));
    }
    std::sort(later_ms.begin(), later_ms.end());
    say({{"first_step_at_s", done_at.count()},
         {"first_ms", first_ms},
         {"later_ms", later_ms[kLaterSteps / 2]}});
  }

  void memory() {
    constexpr int kSteps = 3;
    constexpr auto kWaitMax = std::chrono::seconds(60);
    Job job = make_job(argument(4));
    for (int i = 0; i < kSteps; ++i) job.step();
    ::malloc_trim(0);  // what the allocator keeps for later is not the same in any two runs
    nlohmann::json row = about(job, version());
    row["pid"] = ::getpid();
    say(row);
    const auto start = Clock::now();
    while (std::filesystem::exists(argument(5)) && Clock::now() - start < kWaitMax) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }

  void end() {
    const auto kinds = this->kinds(5);
    auto jobs = jobs_of(kinds);
    nlohmann::json row = about(jobs.at(""), version());
    for (int i = 0, steps = std::stoi(argument(4)); i < steps; ++i) {
      for (const auto& kind : kinds) {
        const auto start = Clock::now();
        row["end_ms"][kind].push_back(jobs.at(is_of_system(kind) ? kind : "").end_ms_of_step());
        row["step_ms"][kind].push_back(ms_since(start));
      }
    }
    say(row);
  }

  const std::function<std::unique_ptr<TrainingSystem>()>& connect_;
  const std::vector<std::string> arguments_;
  std::ofstream out_;
  std::unique_ptr<TrainingSystem> system_;
};

}  // namespace

int train(const std::function<std::unique_ptr<TrainingSystem>()>& connect, int argc, char** argv) {
  try {
    Worker(connect, {argv + 1, argv + argc}).run();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
    return 1;
  }
}

}  // namespace lockstep::bench

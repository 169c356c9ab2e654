#include "lockstep/train/trainer.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/nn/functional/loss.h>
#include <torch/utils.h>
#include <torch/version.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <numeric>

#include "lockstep/base/version.h"
#include "lockstep/env/files.h"
#include "lockstep/torch/gradient_norm.h"
#include "lockstep/torch/tensor.h"
#include "lockstep/train/agree.h"
#include "lockstep/train/optimizer.h"
#include "lockstep/train/process.h"
#include "lockstep/train/state_file.h"

namespace lockstep::train {

namespace {

using Clock = std::chrono::steady_clock;
namespace functional = torch::nn::functional;

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// The same parameters on any number of ranks; afterwards each rank has a stream of its own, for
// dropout.
std::shared_ptr<Model> make_seeded_model(const TrainSettings& settings, const InputShape& input,
                                         int rank) {
  const auto seed = static_cast<std::uint64_t>(settings.seed);
  torch::manual_seed(seed);
  auto model = make_model(settings, input);
  if (settings.channels_last) {
    torch::NoGradGuard no_grad;
    for (auto& parameter : model->parameters()) {
      if (parameter.dim() != 4) continue;
      parameter.set_data(parameter.contiguous(at::MemoryFormat::ChannelsLast));
    }
  }
  torch::manual_seed(seed + 1 + static_cast<std::uint64_t>(rank));
  return model;
}

std::int64_t steps_of(const TrainSettings& settings, const Sampler& sampler) {
  const std::int64_t all = settings.epochs * sampler.steps_per_epoch();
  return settings.steps > 0 ? std::min(all, settings.steps) : all;
}

template <class T>
TensorView view_of(T* values, std::int64_t count);
template <>
TensorView view_of(double* values, std::int64_t count) {
  return {values, count, DType::f64};
}
template <>
TensorView view_of(std::int64_t* values, std::int64_t count) {
  return {values, count, DType::i64};
}

}  // namespace

Trainer::Trainer(const TrainSettings& settings, Group& group, const BatchSource& data,
                 Progress* progress)
    : settings_(settings),
      group_(group),
      data_(data),
      progress_(progress),
      model_(make_seeded_model(settings, data.input_shape(), group.rank())),
      sampler_({.sample_count = data.sample_count(Part::train),
                .global_batch = settings.batch,
                .rank = group.rank(),
                .ranks = group.size(),
                .seed = static_cast<std::uint64_t>(settings.seed),
                .drop_last = settings.drop_last}),
      total_steps_(steps_of(settings, sampler_)),
      learning_rate_(learning_rate(settings, total_steps_)) {
  DistributedOptions options;
  options.bucket_bytes_max = settings.bucket_bytes;
  options.buffers = BufferSync::on_request;  // they are averaged where they are used
  options.check_every = settings.check_replicas;
  ddp_ = std::make_unique<DistributedDataParallel>(model_, group, options);
  if (!settings.trace.empty()) ddp_->start_trace();
  optimizer_ = make_optimizer(settings, model_->parameters());
}

Report Trainer::run() {
  Report report = describe();
  if (progress_ != nullptr) {
    progress_->begin(report, {.epochs = settings_.epochs,
                              .steps_per_epoch = sampler_.steps_per_epoch(),
                              .total_steps = total_steps_,
                              .log_every = settings_.log_every});
  }
  for (std::int64_t epoch = 0; steps_done_ < total_steps_; ++epoch) {
    const auto start = Clock::now();
    train_epoch(epoch);
    EpochNews news{.epoch = epoch, .train_loss = finish_epoch_loss(epoch)};
    report.train_loss = news.train_loss;
    const bool last = steps_done_ == total_steps_;
    if (settings_.eval_every > 0 && (last || (epoch + 1) % settings_.eval_every == 0)) {
      const Evaluation evaluation = evaluate();
      report.accuracy = news.accuracy = evaluation.accuracy;
      report.loss = news.loss = evaluation.loss;
    }
    news.seconds = ms_since(start) / 1000;
    if (progress_ != nullptr) progress_->epoch(news);
  }
  report.epochs = steps_done_ / sampler_.steps_per_epoch();
  save_model();
  if (!settings_.trace.empty()) agree(group_, [&] { ddp_->write_trace(settings_.trace); });
  complete(report);
  if (progress_ != nullptr) progress_->end(report);
  return report;
}

Report Trainer::describe() const {
  Report report;
  report.model = settings_.model;
  for (const auto& parameter : model_->parameters()) report.parameter_count += parameter.numel();
  report.dataset = settings_.dataset;
  report.data = settings_.data;
  report.train_samples = data_.sample_count(Part::train);
  report.test_samples = data_.sample_count(Part::test);
  report.ranks = group_.size();
  report.threads_per_rank = at::get_num_threads();
  report.transport = group_.transport_name();
  report.global_batch = settings_.batch;
  report.lockstep_version = kVersion;
  report.libtorch_version = TORCH_VERSION;
  return report;
}

void Trainer::train_epoch(std::int64_t epoch) {
  model_->train();
  const std::int64_t steps = sampler_.steps_per_epoch();
  for (std::int64_t step = 0; step < steps && steps_done_ < total_steps_; ++step) {
    train_step(epoch, step);
  }
}

void Trainer::train_step(std::int64_t epoch, std::int64_t step_of_epoch) {
  const auto start = Clock::now();
  set_learning_rate(*optimizer_, learning_rate_.at(steps_done_));
  std::vector<std::int64_t> samples = sampler_.samples(epoch, step_of_epoch);
  // The mean over ranks is to be the mean over samples. A rank without a sample in a short last
  // batch computes with weight 0, so that it still takes part in the reduction.
  const double weight = sampler_.loss_weight(step_of_epoch);
  if (samples.empty()) samples.push_back(0);
  const Batch batch = data_.load(Part::train, samples);

  ddp_->begin_step();
  optimizer_->zero_grad();
  const torch::Tensor loss = functional::cross_entropy(model_->forward(batch.input), batch.target);
  backward(weight == 1 ? loss : loss * weight);
  if (settings_.clip_norm > 0) clip_gradients(model_->parameters(), settings_.clip_norm, group_);
  optimizer_->step();
  record_step(epoch, step_of_epoch, loss.item<double>(), ms_since(start));
}

void Trainer::backward(const torch::Tensor& loss) {
  try {
    loss.backward();
  } catch (const Error& error) {
    // That replicas differ all ranks see alike.
    if (error.code() == Code::corrupt) throw AgreedError(error.code(), error.what());
    throw;
  }
}

void Trainer::record_step(std::int64_t epoch, std::int64_t step_of_epoch, double loss,
                          double step_ms) {
  const StepCost cost = ddp_->last_step();
  const std::int64_t global_count = sampler_.global_count(step_of_epoch);
  const std::int64_t local_count = sampler_.positions(step_of_epoch).count;
  if (steps_done_ == 0) {
    time_to_first_step_s_ = seconds_since_start();
  } else {
    step_ms_.push_back(step_ms);
    compute_ms_.push_back(step_ms - cost.exposed_comm_ms);
    exposed_ms_.push_back(cost.exposed_comm_ms);
  }
  if (local_count > 0) loss_sum_ += loss * static_cast<double>(local_count);
  loss_count_ += local_count;
  train_seconds_ += step_ms / 1000;
  samples_trained_ += global_count;
  bytes_reduced_ += cost.bytes_reduced;
  if (progress_ != nullptr) {
    progress_->step({.epoch = epoch,
                     .step = steps_done_,
                     .global_count = global_count,
                     .loss = loss,
                     .step_ms = step_ms,
                     .exposed_comm_ms = cost.exposed_comm_ms});
  }
  ++steps_done_;
}

double Trainer::finish_epoch_loss(std::int64_t epoch) {
  double sum = loss_sum_;
  std::int64_t count = loss_count_;
  group_.all_reduce(view_of(&sum, 1));
  group_.all_reduce(view_of(&count, 1));
  loss_sum_ = 0;
  loss_count_ = 0;
  const double loss = sum / static_cast<double>(count);
  if (!std::isfinite(loss)) {
    throw AgreedError(Code::invalid_argument,
                      fmt::format("the training loss is {} after step {} of epoch {}: training "
                                  "diverged; lower lr (now {}) or lengthen warmup_steps",
                                  loss, steps_done_, epoch + 1, settings_.lr));
  }
  return loss;
}

// Each test sample is counted once, by the rank whose slice it is in; a rank with an empty slice
// still takes part in the sums.
Trainer::Evaluation Trainer::evaluate() {
  average_buffers();
  model_->eval();
  torch::NoGradGuard no_grad;
  const Range mine = slice_of({0, data_.sample_count(Part::test)}, group_.size(), group_.rank());
  double loss_sum = 0;
  std::int64_t counts[] = {0, 0};  // targets, and those that were right
  for (std::int64_t i = 0; i < chunks_in(mine.count, settings_.eval_batch); ++i) {
    const Range chunk = chunk_of(mine, settings_.eval_batch, i);
    std::vector<std::int64_t> samples(static_cast<std::size_t>(chunk.count));
    std::iota(samples.begin(), samples.end(), chunk.begin);
    const Batch batch = data_.load(Part::test, samples);
    const torch::Tensor logits = model_->forward(batch.input);
    loss_sum +=
        functional::cross_entropy(logits, batch.target,
                                  functional::CrossEntropyFuncOptions().reduction(torch::kSum))
            .item<double>();
    counts[0] += batch.target.numel();
    counts[1] += logits.argmax(1).eq(batch.target).sum().item<std::int64_t>();
  }
  group_.all_reduce(view_of(&loss_sum, 1));
  group_.all_reduce(view_of(counts, 2));
  if (counts[0] == 0) return {};
  const auto total = static_cast<double>(counts[0]);
  return {static_cast<double>(counts[1]) / total, loss_sum / total};
}

// Running statistics are those of each rank's own samples: the mean stands for all of them.
void Trainer::average_buffers() {
  torch::NoGradGuard no_grad;
  for (torch::Tensor& buffer : model_->buffers()) {
    if (buffer.is_floating_point()) group_.all_reduce(buffer, Reduce::mean);
  }
}

std::vector<std::string> Trainer::checksums() {
  return group_.exchange(fmt::format("{:016x}", parameter_checksum(*model_)));
}

void Trainer::save_model() {
  if (settings_.output.empty()) return;
  average_buffers();
  agree(group_, [&] {
    if (group_.rank() != 0) return;
    write_file_atomically(std::filesystem::path(settings_.output) / "model.pt",
                          state_file(*model_));
  });
}

void Trainer::complete(Report& report) {
  report.steps = steps_done_;
  report.train_seconds = train_seconds_;
  report.samples_per_s = static_cast<double>(samples_trained_) / std::max(train_seconds_, 1e-9);
  report.step_ms = median(step_ms_);
  report.compute_ms = median(compute_ms_);
  report.exposed_comm_ms = median(exposed_ms_);
  report.bytes_reduced = bytes_reduced_;
  report.time_to_first_step_s = time_to_first_step_s_;
  report.parameter_checksum = checksums();
  if (!settings_.output.empty()) {
    report.saved_model = (std::filesystem::path(settings_.output) / "model.pt").string();
  }
}

}  // namespace lockstep::train

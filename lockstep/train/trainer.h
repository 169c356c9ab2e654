// The training loop of one rank.
#pragma once

#include <torch/optim/optimizer.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/data/sampler.h"
#include "lockstep/group/group.h"
#include "lockstep/torch/distributed_data_parallel.h"
#include "lockstep/torch/learning_rate.h"
#include "lockstep/train/batches.h"
#include "lockstep/train/model.h"
#include "lockstep/train/progress.h"
#include "lockstep/train/report.h"
#include "lockstep/train/settings.h"

namespace lockstep::train {

class Trainer final {
 public:
  // Collective, as run(): every rank with the same settings and data. `progress` is null on the
  // ranks that show nothing. Settings, group, data and progress must outlive the Trainer.
  Trainer(const TrainSettings& settings, Group& group, const BatchSource& data, Progress* progress);

  // Trains, evaluates, saves the model. Throws Error; AgreedError where all ranks throw the same.
  Report run();

 private:
  struct Evaluation {
    std::optional<double> accuracy;
    std::optional<double> loss;
  };

  Report describe() const;
  void train_epoch(std::int64_t epoch);
  void train_step(std::int64_t epoch, std::int64_t step_of_epoch);
  void backward(const torch::Tensor& loss);
  void record_step(std::int64_t epoch, std::int64_t step_of_epoch, double loss, double step_ms);
  double finish_epoch_loss(std::int64_t epoch);
  Evaluation evaluate();
  void average_buffers();
  void save_model();
  void complete(Report& report);
  std::vector<std::string> checksums();

  // Constant after construction.
  const TrainSettings& settings_;
  Group& group_;
  const BatchSource& data_;
  Progress* progress_;
  std::shared_ptr<Model> model_;
  Sampler sampler_;
  std::int64_t total_steps_;
  LearningRate learning_rate_;

  std::unique_ptr<DistributedDataParallel> ddp_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  std::int64_t steps_done_ = 0;

  // Of this epoch, on this rank.
  double loss_sum_ = 0;
  std::int64_t loss_count_ = 0;
  // Of the whole run, on this rank.
  std::vector<double> step_ms_;
  std::vector<double> compute_ms_;
  std::vector<double> exposed_ms_;
  double train_seconds_ = 0;
  std::int64_t samples_trained_ = 0;
  std::int64_t bytes_reduced_ = 0;
  double time_to_first_step_s_ = 0;
};

}  // namespace lockstep::train

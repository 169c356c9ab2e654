// The training of bench/ddp, the same for every C++ system in it: models, steps, what is timed.
//
// Arguments of a program, each of whose ranks writes lines of JSON to PREFIX.RANK:
//   PREFIX blocks MODEL BATCH STEPS BLOCKS KIND,KIND…
//       milliseconds per step in blocks of STEPS, every kind in each round, by turns
//   PREFIX first MODEL BATCH KIND
//       the first step, when it was done, and a later one
//   PREFIX memory MODEL BATCH KIND FILE
//       trains a little, says its process id, and stays as it is until FILE is gone
//   PREFIX end MODEL BATCH STEPS KIND,KIND…
//       in every step, milliseconds from the last gradient to the return of backward()
// KIND is one of the system's own ways to average gradients, or
//   apart    nothing is synchronized, all ranks at once
//   barrier  the same with a barrier after each step, and nothing reduced
//   alone    apart on rank 0 while the other ranks wait
// `first` and `memory` of apart are those of a program that knows no other ranks.
#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace lockstep::bench {

// Averages the gradients of one module until it is destroyed.
class Averaging {
 public:
  virtual ~Averaging() = default;
  // Called after each backward pass. Gradients are averages over the ranks when it returns.
  virtual void finish() = 0;
  // What the last step lost to communication, where the system says it.
  virtual std::optional<double> exposed_ms() const = 0;
};

// One rank of a job. Everything throws std::exception on failure.
class TrainingSystem {
 public:
  virtual ~TrainingSystem() = default;
  virtual std::string version() const = 0;
  virtual int rank() const = 0;
  virtual void barrier() = 0;
  // Collective, as the user of that system would do it. Throws for a kind that it does not have.
  virtual std::unique_ptr<Averaging> average(const std::string& kind,
                                             std::shared_ptr<torch::nn::Module> module) = 0;
};

// `connect` joins the job. Returns the exit status of the program; says on stderr what went wrong.
int train(const std::function<std::unique_ptr<TrainingSystem>()>& connect, int argc, char** argv);

}  // namespace lockstep::bench

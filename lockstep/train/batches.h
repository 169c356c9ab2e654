// A data set as batches of tensors.
//
// Thread rule: const calls are free to use anywhere; LibTorch operators are not used in them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/train/model.h"
#include "lockstep/train/settings.h"

namespace lockstep::train {

struct Batch {
  at::Tensor input;   // what Model::forward takes
  at::Tensor target;  // i64, one for each row that Model::forward gives
};

enum class Part { train, test };

class BatchSource {
 public:
  virtual ~BatchSource() = default;
  virtual std::int64_t sample_count(Part part) const = 0;
  virtual InputShape input_shape() const = 0;
  // The samples with these numbers, each in [0, sample_count(part)), in this order.
  virtual Batch load(Part part, std::span<const std::int64_t> samples) const = 0;
};

// Reads the data set that the settings name. Errors as in dataset.h; Error(invalid_argument) for a
// data set without a single training sample.
std::unique_ptr<BatchSource> open_data(const TrainSettings& settings);

}  // namespace lockstep::train

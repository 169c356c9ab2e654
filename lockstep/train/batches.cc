#include "lockstep/train/batches.h"

#include <ATen/ATen.h>

#include <array>

#include "lockstep/base/error.h"
#include "lockstep/train/dataset.h"

namespace lockstep::train {

namespace {

class ImageSource final : public BatchSource {
 public:
  ImageSource(ImageDataset dataset, bool channels_last)
      : dataset_(std::move(dataset)), channels_last_(channels_last) {
    for (std::size_t c = 0; c < dataset_.mean.size(); ++c) {
      auto& values = normalized_.emplace_back();
      for (std::size_t v = 0; v < values.size(); ++v) {
        values[v] = (static_cast<float>(v) / 255 - dataset_.mean[c]) / dataset_.deviation[c];
      }
    }
  }

  std::int64_t sample_count(Part part) const override { return images(part).count; }

  InputShape input_shape() const override {
    const Images& train = dataset_.train;
    return {train.channels, train.height, train.width, dataset_.classes};
  }

  Batch load(Part part, std::span<const std::int64_t> samples) const override {
    const Images& from = images(part);
    const auto count = static_cast<std::int64_t>(samples.size());
    const auto format =
        channels_last_ ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
    Batch batch{at::empty({count, from.channels, from.height, from.width},
                          at::TensorOptions(at::kFloat).memory_format(format)),
                at::empty({count}, at::kLong)};
    auto* pixels = batch.input.data_ptr<float>();
    auto* targets = batch.target.data_ptr<std::int64_t>();
    const std::int64_t plane = std::int64_t{1} * from.height * from.width;
    for (const std::int64_t sample : samples) {
      const std::uint8_t* source = from.pixels.data() + sample * from.channels * plane;
      for (int c = 0; c < from.channels; ++c) {
        const auto& values = normalized_[static_cast<std::size_t>(c)];
        float* target = channels_last_ ? pixels + c : pixels + c * plane;
        const std::int64_t stride = channels_last_ ? from.channels : 1;
        for (std::int64_t p = 0; p < plane; ++p) target[p * stride] = values[*source++];
      }
      pixels += from.channels * plane;
      *targets++ = from.labels[static_cast<std::size_t>(sample)];
    }
    return batch;
  }

 private:
  const Images& images(Part part) const {
    return part == Part::train ? dataset_.train : dataset_.test;
  }

  ImageDataset dataset_;
  bool channels_last_;
  std::vector<std::array<float, 256>> normalized_;  // per channel and pixel value
};

// Sample i: tokens [i · length, (i + 1) · length), each with the one after it as its target; so
// each byte but the first is a target once, and what does not fill a sample is left out.
class TextSource final : public BatchSource {
 public:
  TextSource(TextDataset dataset, std::int64_t length)
      : dataset_(std::move(dataset)), length_(length) {}

  std::int64_t sample_count(Part part) const override {
    const auto bytes = static_cast<std::int64_t>(text(part).size());
    return bytes < 1 ? 0 : (bytes - 1) / length_;
  }

  InputShape input_shape() const override { return {}; }

  Batch load(Part part, std::span<const std::int64_t> samples) const override {
    const auto count = static_cast<std::int64_t>(samples.size());
    Batch batch{at::empty({count, length_}, at::kLong), at::empty({count * length_}, at::kLong)};
    auto* tokens = batch.input.data_ptr<std::int64_t>();
    auto* targets = batch.target.data_ptr<std::int64_t>();
    for (const std::int64_t sample : samples) {
      const std::uint8_t* source = text(part).data() + sample * length_;
      for (std::int64_t i = 0; i < length_; ++i) {
        *tokens++ = source[i];
        *targets++ = source[i + 1];
      }
    }
    return batch;
  }

 private:
  const std::vector<std::uint8_t>& text(Part part) const {
    return part == Part::train ? dataset_.train : dataset_.validation;
  }

  TextDataset dataset_;
  std::int64_t length_;
};

std::unique_ptr<BatchSource> open_unchecked(const TrainSettings& s) {
  if (s.dataset == "text") {
    return std::make_unique<TextSource>(load_text(s.data, s.validation_fraction), s.length);
  }
  auto dataset =
      s.dataset == "idx" ? load_idx(s.data, static_cast<int>(s.classes)) : load_cifar10(s.data);
  return std::make_unique<ImageSource>(std::move(dataset), s.channels_last);
}

}  // namespace

std::unique_ptr<BatchSource> open_data(const TrainSettings& s) {
  auto source = open_unchecked(s);
  const std::int64_t samples = source->sample_count(Part::train);
  if (samples < 1 || (s.drop_last && samples < s.batch)) {
    fail(Code::invalid_argument, "'{}' has {} training samples: expected at least {}", s.data,
         samples, s.drop_last ? s.batch : 1);
  }
  return source;
}

}  // namespace lockstep::train

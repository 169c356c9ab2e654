// Data sets as bytes in memory: read once, checked on the way in.
//
// Errors: a file that is missing is Error(io); one that is truncated, damaged, of another kind or
// at odds with its companions is Error(corrupt). Both name the file, what was expected and found.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::train {

struct Images {
  std::int64_t count = 0;
  int channels = 0;
  int height = 0;
  int width = 0;
  std::vector<std::uint8_t> pixels;  // count × channels × height × width
  std::vector<std::uint8_t> labels;  // count, each below the number of classes
};

struct ImageDataset {
  Images train;
  Images test;
  int classes = 0;
  // Of the training pixels, per channel, on the scale where 255 is 1.
  std::vector<float> mean;
  std::vector<float> deviation;
};

struct TextDataset {
  std::vector<std::uint8_t> train;
  std::vector<std::uint8_t> validation;
};

// MNIST's form (http://yann.lecun.com/exdb/mnist): {train,t10k}-{images-idx3,labels-idx1}-ubyte,
// each plain or with .gz.
ImageDataset load_idx(const std::filesystem::path& folder, int classes);

// CIFAR-10's binary form (https://www.cs.toronto.edu/~kriz/cifar.html): data_batch_1.bin to _5 and
// test_batch.bin, records of a label and 3 × 32 × 32 bytes.
ImageDataset load_cifar10(const std::filesystem::path& folder);

// Any file as bytes; its last `validation_fraction` for evaluation.
TextDataset load_text(const std::filesystem::path& file, double validation_fraction);

}  // namespace lockstep::train

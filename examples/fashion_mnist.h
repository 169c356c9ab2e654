// Fashion-MNIST as a data set of torch::data: gzipped IDX files, read whole.
#pragma once

#include <torch/torch.h>
#include <zlib.h>

#include <stdexcept>
#include <string>
#include <vector>

class FashionMnist : public torch::data::datasets::Dataset<FashionMnist> {
 public:
  // `part`: "train" or "t10k".
  explicit FashionMnist(const std::string& part,
                        const std::string& folder = "/usr/share/datasets/fashion-mnist") {
    images_ = read(folder + "/" + part + "-images-idx3-ubyte.gz", 16).view({-1, 1, 28, 28});
    labels_ = read(folder + "/" + part + "-labels-idx1-ubyte.gz", 8);
  }

  torch::data::Example<> get(std::size_t i) override {
    const auto index = static_cast<std::int64_t>(i);
    return {(images_[index].to(torch::kFloat) / 255 - 0.286) / 0.353,
            labels_[index].to(torch::kLong)};
  }
  torch::optional<std::size_t> size() const override {
    return static_cast<std::size_t>(labels_.size(0));
  }

 private:
  static torch::Tensor read(const std::string& path, std::int64_t header_bytes) {
    gzFile file = gzopen(path.c_str(), "rb");
    if (file == nullptr) throw std::runtime_error("cannot read " + path);
    std::vector<std::uint8_t> bytes(std::size_t{64} << 20);
    const int count = gzread(file, bytes.data(), static_cast<unsigned>(bytes.size()));
    if (gzclose(file) != Z_OK || count < header_bytes)
      throw std::runtime_error(path + " is damaged");
    return torch::from_blob(bytes.data() + header_bytes, {count - header_bytes}, torch::kByte)
        .clone();
  }

  torch::Tensor images_, labels_;
};

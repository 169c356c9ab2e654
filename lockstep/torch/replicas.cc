#include "lockstep/torch/replicas.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>
#include <torch/utils.h>

#include <sstream>

#include "lockstep/base/checksum.h"
#include "lockstep/torch/tensor.h"

namespace lockstep {

namespace {

std::string line_of(const char* kind, const std::string& name, const at::Tensor& tensor) {
  return fmt::format("{} '{}': {} [{}], strides [{}]{}", kind, name,
                     at::toString(tensor.scalar_type()), fmt::join(tensor.sizes(), ", "),
                     fmt::join(tensor.strides(), ", "),
                     tensor.requires_grad() ? "" : ", no gradient");
}

std::string describe_module(const torch::nn::Module& module) {
  std::string text;
  for (const auto& item : module.named_parameters()) {
    text += line_of("parameter", item.key(), item.value()) + "\n";
  }
  for (const auto& item : module.named_buffers()) {
    text += line_of("buffer", item.key(), item.value()) + "\n";
  }
  return text;
}

// The first line in which two descriptions differ, as the left and the right have it.
std::pair<std::string, std::string> first_difference(const std::string& left,
                                                     const std::string& right, int& index) {
  std::istringstream lines[2] = {std::istringstream(left), std::istringstream(right)};
  for (index = 0;; ++index) {
    std::string line[2];
    for (const int side : {0, 1}) {
      if (!std::getline(lines[side], line[side])) line[side] = "nothing more";
    }
    if (line[0] != line[1]) return {line[0], line[1]};
  }
}

}  // namespace

void check_same_module(const torch::nn::Module& module, Group& group) {
  const auto descriptions = group.exchange(describe_module(module));
  for (std::size_t rank = 1; rank < descriptions.size(); ++rank) {
    if (descriptions[rank] == descriptions[0]) continue;
    int index = 0;
    const auto [left, right] = first_difference(descriptions[0], descriptions[rank], index);
    fail(Code::invalid_argument,
         "the replicas are not the same model: entry {} is {} on rank 0, but {} on rank {}", index,
         left, right, rank);
  }
}

void broadcast_module(torch::nn::Module& module, Group& group) {
  for (const at::Tensor& parameter : module.parameters()) group.broadcast(parameter);
  for (const at::Tensor& buffer : module.buffers()) group.broadcast(buffer);
}

std::uint64_t parameter_checksum(const torch::nn::Module& module, bool buffers) {
  std::uint64_t sum = 0;
  const auto add = [&](const at::Tensor& tensor) {
    const at::Tensor values = tensor.detach().contiguous();
    sum = checksum(values.data_ptr(), static_cast<std::size_t>(values.nbytes()), sum);
  };
  for (const at::Tensor& parameter : module.parameters()) add(parameter);
  if (buffers) {
    for (const at::Tensor& buffer : module.buffers()) add(buffer);
  }
  return sum;
}

}  // namespace lockstep

#include "lockstep/torch/replicas.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>
#include <torch/utils.h>

#include <algorithm>
#include <sstream>
#include <vector>

#include "lockstep/base/checksum.h"
#include "lockstep/torch/tensor.h"

namespace lockstep {

namespace {

std::string line_of(const char* kind, const std::string& name, const at::Tensor& tensor) {
  return fmt::format("{} '{}': {} [{}], strides [{}]{}\n", kind, name,
                     at::toString(tensor.scalar_type()), fmt::join(tensor.sizes(), ", "),
                     fmt::join(tensor.strides(), ", "),
                     tensor.requires_grad() ? "" : ", no gradient");
}

std::string describe_module(const ModuleView& module) {
  std::string text;
  for (const auto& [name, tensor] : module.parameters()) text += line_of("parameter", name, tensor);
  for (const auto& [name, tensor] : module.buffers()) text += line_of("buffer", name, tensor);
  return text;
}

std::uint64_t checksum_of(const at::Tensor& tensor, std::uint64_t seed) {
  const at::Tensor values = tensor.detach().contiguous();
  return checksum(values.data_ptr(), static_cast<std::size_t>(values.nbytes()), seed);
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

void check_same_module(const ModuleView& module, Group& group) {
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

void broadcast_tensors(const std::vector<at::Tensor>& tensors, Group& group, int root) {
  const std::vector<TensorView> views(tensors.begin(), tensors.end());
  if (!views.empty()) group.broadcast(views, root);
}

void broadcast_module(const ModuleView& module, Group& group, int root) {
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : module.parameters()) tensors.push_back(tensor);
  for (const auto& [name, tensor] : module.buffers()) tensors.push_back(tensor);
  broadcast_tensors(tensors, group, root);
}

std::uint64_t parameter_checksum(const ModuleView& module, bool buffers) {
  std::uint64_t sum = 0;
  for (const auto& [name, tensor] : module.parameters()) sum = checksum_of(tensor, sum);
  if (buffers) {
    for (const auto& [name, tensor] : module.buffers()) sum = checksum_of(tensor, sum);
  }
  return sum;
}

void check_replicas(const ModuleView& module, Group& group, const std::string& when) {
  const auto gather = [&](std::vector<std::uint64_t> own) {
    std::vector<std::uint64_t> all(own.size() * static_cast<std::size_t>(group.size()));
    group.all_gather({all.data(), static_cast<std::int64_t>(all.size()), DType::i64},
                     {own.data(), static_cast<std::int64_t>(own.size()), DType::i64});
    return all;
  };
  const auto sums = gather({parameter_checksum(module)});
  const auto differs = [&](std::uint64_t sum) { return sum != sums[0]; };
  if (std::none_of(sums.begin(), sums.end(), differs)) return;
  const NamedTensors parameters = module.parameters();
  std::vector<std::uint64_t> own;
  for (const auto& [name, tensor] : parameters) own.push_back(checksum_of(tensor, 0));
  const auto each = gather(own);
  for (std::size_t i = 0; i < own.size(); ++i) {
    for (std::size_t rank = 1; rank < sums.size(); ++rank) {
      if (each[rank * own.size() + i] == each[i]) continue;
      fail(
          Code::corrupt,
          "{} the replicas are not identical: parameter '{}' of rank {} differs from that of rank "
          "0 (something changed it on one rank alone: an optimizer step that was skipped, a random "
          "initialization after wrapping, a device that computes wrongly)",
          when, parameters[i].first, rank);
    }
  }
}

}  // namespace lockstep

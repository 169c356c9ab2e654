// For tests that hold on any number of ranks, be they threads or processes.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdlib>
#include <functional>
#include <string>

#include "lockstep/group/ranks_as_threads.h"
#include "lockstep/torch/tensor.h"

namespace lockstep {

// Runs `body` on every rank of groups of 1 to 4 ranks; on this process's rank, if it is one.
inline void everywhere(const std::function<void(Group&)>& body) {
  if (std::getenv("RANK") != nullptr) {
    static Group group = init();
    return body(group);
  }
  for (const int ranks : {1, 2, 3, 4}) {
    EXPECT_THAT(run_ranks(ranks, Transport::shm, body), ::testing::Each(::testing::IsEmpty()))
        << ranks << " ranks";
  }
}

// The message of the Error that `call` throws.
template <class Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

// y = w·x, with the gradient x.
struct Scalar : torch::nn::Module {
  explicit Scalar(double value = 1) { w = register_parameter("w", torch::full({1}, value)); }
  torch::Tensor forward(double x) { return (w * x).sum(); }
  float gradient() { return w.grad().item<float>(); }
  torch::Tensor w;
};

struct Two : torch::nn::Module {
  Two() {
    a = register_parameter("a", torch::ones({3}));
    b = register_parameter("b", torch::ones({2}));
  }
  torch::Tensor a, b;
};

// Of values first, first + 1, …, one for each rank.
inline double mean_from(double first, int ranks) {
  return first + (ranks - 1) / 2.0;
}

inline bool same_everywhere(const torch::Tensor& tensor, Group& group) {
  torch::Tensor low = tensor.detach().clone(), high = low.clone();
  group.all_reduce(low, Reduce::min);
  group.all_reduce(high, Reduce::max);
  return torch::equal(low, high);
}

}  // namespace lockstep

// The arithmetic of batch normalization over tensors seen channel by channel: sums in f64 whatever
// the element type, so that a large mean costs no precision and half types need no other path.
//
// Tensors are CPU tensors of a floating type (f16, bf16, f32, f64) with the channels in dimension
// 1, "dense": as dense_by_channel() gives them. Vectors of one number per channel are f64 tensors.
//
// Thread rule: free to use anywhere. Each channel's sum is computed by one thread in one order: the
// number of threads (at::get_num_threads) does not change a bit.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "lockstep/group/group.h"

namespace lockstep {

// Of `count` values in each channel: their mean, and the sum of their squared distances from it.
struct BatchMoments {
  std::int64_t count = 0;
  at::Tensor mean;
  at::Tensor squares;
};

// Row-major, or channels last where the tensor is laid out so; the tensor itself if it is either
// already. Autograd follows.
at::Tensor dense_by_channel(const at::Tensor& input);

// Two passes: the mean, then the distances from it.
BatchMoments batch_moments(const at::Tensor& dense);

// Collective, one all_gather: the moments of all ranks' values together, the same bits on every
// rank. Counts may differ and be zero. Combined in rank order (Chan, Golub, LeVeque, "Updating
// Formulae and a Pairwise Algorithm for Computing Sample Variances", 1979).
BatchMoments moments_of_all_ranks(const BatchMoments& own, Group& group);

// (input − mean) · scale + shift, as input is laid out.
at::Tensor scale_and_shift(const at::Tensor& dense, const at::Tensor& mean, const at::Tensor& scale,
                           const at::Tensor& shift);

// 2 × channels: the sums of gradient, and of gradient · (input − mean). Both laid out alike.
at::Tensor gradient_sums(const at::Tensor& gradient, const at::Tensor& dense,
                         const at::Tensor& mean);

// (gradient − shift − (input − mean) · slope) · scale, as input is laid out.
at::Tensor input_gradient(const at::Tensor& gradient, const at::Tensor& dense,
                          const at::Tensor& mean, const at::Tensor& shift, const at::Tensor& slope,
                          const at::Tensor& scale);

}  // namespace lockstep

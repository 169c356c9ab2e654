#include "lockstep/torch/batch_moments.h"

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include <algorithm>

#include "lockstep/torch/tensor.h"

namespace lockstep {

namespace {

// Where element i of channel c in the o-th run lies: (o · channels + c) · inner + i. Row-major, a
// run is what follows the channel dimension; channels last, a run is one element.
struct Layout {
  std::int64_t outer;
  std::int64_t channels;
  std::int64_t inner;

  explicit Layout(const at::Tensor& dense) : outer(1), channels(dense.size(1)), inner(1) {
    const std::int64_t per_channel = channels == 0 ? 0 : dense.numel() / channels;
    const bool row_major = dense.is_contiguous();
    outer = row_major ? dense.size(0) : per_channel;
    inner = outer == 0 ? 0 : per_channel / outer;
  }
};

// Elements that are worth another thread.
constexpr std::int64_t kGrain = 32'768;

std::int64_t grain_of(std::int64_t elements_each) {
  return std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(1, elements_each));
}

struct Pair {
  double first = 0;
  double second = 0;
};

// A run's sum in as many independent chains as keep the adder busy.
template <class Term>
Pair sum_run(std::int64_t begin, std::int64_t end, const Term& term) {
  constexpr std::int64_t kChains = 8;
  double first[kChains] = {}, second[kChains] = {};
  std::int64_t i = begin;
  for (; i + kChains <= end; i += kChains) {
    for (std::int64_t chain = 0; chain < kChains; ++chain) {
      const Pair value = term(i + chain);
      first[chain] += value.first;
      second[chain] += value.second;
    }
  }
  Pair sum;
  for (; i < end; ++i) {
    const Pair value = term(i);
    sum.first += value.first;
    sum.second += value.second;
  }
  for (std::int64_t chain = 0; chain < kChains; ++chain) {
    sum.first += first[chain];
    sum.second += second[chain];
  }
  return sum;
}

// Adds up term(element, channel) of each channel; `sums` is 2 × channels and zero.
template <class Term>
void sum_channels(const Layout& layout, double* sums, const Term& term) {
  double* const first = sums;
  double* const second = sums + layout.channels;
  const auto add = [&](std::int64_t channel, const Pair& value) {
    first[channel] += value.first;
    second[channel] += value.second;
  };
  at::parallel_for(
      0, layout.channels, grain_of(layout.outer * layout.inner),
      [&](std::int64_t begin, std::int64_t end) {
        if (layout.inner == 1) {  // neighbours in memory belong to neighbouring channels
          for (std::int64_t row = 0; row < layout.outer; ++row) {
            for (std::int64_t c = begin; c < end; ++c) add(c, term(row * layout.channels + c, c));
          }
          return;
        }
        for (std::int64_t c = begin; c < end; ++c) {
          for (std::int64_t o = 0; o < layout.outer; ++o) {
            const std::int64_t at = (o * layout.channels + c) * layout.inner;
            add(c, sum_run(at, at + layout.inner, [&](std::int64_t i) { return term(i, c); }));
          }
        }
      });
}

// output[element] = value(element, channel) of every element.
template <class T, class Value>
void fill_channels(const Layout& layout, T* output, const Value& value) {
  at::parallel_for(0, layout.outer, grain_of(layout.channels * layout.inner),
                   [&](std::int64_t begin, std::int64_t end) {
                     for (std::int64_t o = begin; o < end; ++o) {
                       if (layout.inner == 1) {
                         const std::int64_t at = o * layout.channels;
                         for (std::int64_t c = 0; c < layout.channels; ++c) {
                           output[at + c] = static_cast<T>(value(at + c, c));
                         }
                         continue;
                       }
                       for (std::int64_t c = 0; c < layout.channels; ++c) {
                         const std::int64_t at = (o * layout.channels + c) * layout.inner;
                         for (std::int64_t i = at; i < at + layout.inner; ++i) {
                           output[i] = static_cast<T>(value(i, c));
                         }
                       }
                     }
                   });
}

// Calls `call` with a value of the element type.
template <class Call>
void with_type_of(const at::Tensor& tensor, const Call& call) {
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, tensor.scalar_type(), "batch_moments",
                                  [&] { call(scalar_t()); });
}

template <class T>
T* elements(const at::Tensor& tensor) {
  return static_cast<T*>(tensor.data_ptr());
}

double* numbers(const at::Tensor& per_channel) {
  return elements<double>(per_channel);
}

at::Tensor zeros_f64(at::IntArrayRef sizes) {
  return at::zeros(sizes, at::TensorOptions().dtype(at::kDouble));
}

}  // namespace

at::Tensor dense_by_channel(const at::Tensor& input) {
  return input.contiguous(input.suggest_memory_format());
}

BatchMoments batch_moments(const at::Tensor& dense) {
  const Layout layout(dense);
  BatchMoments moments;
  moments.count = layout.outer * layout.inner;
  const at::Tensor sums = zeros_f64({2, layout.channels});
  moments.mean = zeros_f64({layout.channels});
  moments.squares = zeros_f64({layout.channels});
  if (moments.count == 0) return moments;
  const auto count = static_cast<double>(moments.count);
  double* const mean = numbers(moments.mean);
  double* const squares = numbers(moments.squares);
  with_type_of(dense, [&](auto type) {
    using T = decltype(type);
    const T* const x = elements<T>(dense);
    sum_channels(layout, numbers(sums), [x](std::int64_t i, std::int64_t) {
      return Pair{static_cast<double>(x[i]), 0};
    });
    for (std::int64_t c = 0; c < layout.channels; ++c) mean[c] = numbers(sums)[c] / count;
    sums.zero_();
    sum_channels(layout, numbers(sums), [x, mean](std::int64_t i, std::int64_t c) {
      const double distance = static_cast<double>(x[i]) - mean[c];
      return Pair{distance * distance, distance};
    });
  });
  // The distances add up to what rounding left in the mean; its share of the squares goes.
  const double* const distances = numbers(sums) + layout.channels;
  for (std::int64_t c = 0; c < layout.channels; ++c) {
    squares[c] = std::max(0.0, numbers(sums)[c] - distances[c] * distances[c] / count);
  }
  return moments;
}

BatchMoments moments_of_all_ranks(const BatchMoments& own, Group& group) {
  const std::int64_t channels = own.mean.numel();
  // Per rank: the count (exact up to 2^53), the means, the squares.
  const std::int64_t row = 1 + 2 * channels;
  const at::Tensor count = at::full({1}, static_cast<double>(own.count), own.mean.options());
  const at::Tensor mine = at::cat({count, own.mean, own.squares});
  const at::Tensor all = zeros_f64({group.size(), row});
  group.all_gather(all, mine);

  BatchMoments total;
  total.mean = zeros_f64({channels});
  total.squares = zeros_f64({channels});
  double* const mean = numbers(total.mean);
  double* const squares = numbers(total.squares);
  double so_far = 0;
  for (int rank = 0; rank < group.size(); ++rank) {
    const double* const theirs = numbers(all) + rank * row;
    const double more = theirs[0];
    if (more == 0) continue;
    const double together = so_far + more;
    for (std::int64_t c = 0; c < channels; ++c) {
      const double apart = theirs[1 + c] - mean[c];
      mean[c] += apart * (more / together);
      squares[c] += theirs[1 + channels + c] + apart * apart * (so_far * (more / together));
    }
    so_far = together;
  }
  total.count = static_cast<std::int64_t>(so_far);
  return total;
}

at::Tensor scale_and_shift(const at::Tensor& dense, const at::Tensor& mean, const at::Tensor& scale,
                           const at::Tensor& shift) {
  const at::Tensor output = at::empty_like(dense);
  const double *m = numbers(mean), *by = numbers(scale), *plus = numbers(shift);
  with_type_of(dense, [&](auto type) {
    using T = decltype(type);
    const T* const x = elements<T>(dense);
    fill_channels(Layout(dense), elements<T>(output), [=](std::int64_t i, std::int64_t c) {
      return (static_cast<double>(x[i]) - m[c]) * by[c] + plus[c];
    });
  });
  return output;
}

at::Tensor gradient_sums(const at::Tensor& gradient, const at::Tensor& dense,
                         const at::Tensor& mean) {
  const Layout layout(dense);
  const at::Tensor sums = zeros_f64({2, layout.channels});
  const double* const m = numbers(mean);
  with_type_of(dense, [&](auto type) {
    using T = decltype(type);
    const T *const x = elements<T>(dense), *const g = elements<T>(gradient);
    sum_channels(layout, numbers(sums), [=](std::int64_t i, std::int64_t c) {
      const auto slope = static_cast<double>(g[i]);
      return Pair{slope, slope * (static_cast<double>(x[i]) - m[c])};
    });
  });
  return sums;
}

at::Tensor input_gradient(const at::Tensor& gradient, const at::Tensor& dense,
                          const at::Tensor& mean, const at::Tensor& shift, const at::Tensor& slope,
                          const at::Tensor& scale) {
  const at::Tensor output = at::empty_like(dense);
  const double *m = numbers(mean), *minus = numbers(shift), *by = numbers(slope);
  const double* const whole = numbers(scale);
  with_type_of(dense, [&](auto type) {
    using T = decltype(type);
    const T *const x = elements<T>(dense), *const g = elements<T>(gradient);
    fill_channels(Layout(dense), elements<T>(output), [=](std::int64_t i, std::int64_t c) {
      const double distance = static_cast<double>(x[i]) - m[c];
      return (static_cast<double>(g[i]) - minus[c] - distance * by[c]) * whole[c];
    });
  });
  return output;
}

}  // namespace lockstep

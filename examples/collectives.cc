// What ranks can do together, without a tensor library: docs/collectives.md is the whole of it.
//
//   lockstep run -n 4 -- collectives
//
// The ranks stand in rows of two. Each row adds up its numbers, all ranks swap some, and a message
// goes around the ring.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <lockstep/lockstep.h>

#include <algorithm>
#include <cstdio>
#include <vector>

namespace {

using lockstep::DType;
using lockstep::Group;
using lockstep::Reduce;
using lockstep::TensorView;

TensorView view(std::vector<float>& values) {
  return {values.data(), static_cast<std::int64_t>(values.size()), DType::f32};
}

// The mean over all ranks, in memory that the ranks of a host share: nothing is copied.
float mean_of_ranks(Group& world) {
  constexpr std::int64_t kCount = 1'000'000;
  const auto block = world.allocate(kCount * sizeof(float));
  auto* values = reinterpret_cast<float*>(block->data());
  std::fill_n(values, kCount, static_cast<float>(world.rank()));
  world.all_reduce({values, kCount, DType::f32}, Reduce::mean);
  return values[kCount - 1];
}

// The sum over this rank's row.
float sum_of_row(Group& world) {
  constexpr int kColumns = 2;
  Group row = *world.split(world.rank() / kColumns);
  std::vector<float> number = {static_cast<float>(world.rank())};
  row.all_reduce(view(number));
  return number[0];
}

// Rank r has 10r, 10r + 1, … and gives the one at s to rank s.
std::vector<float> swapped(Group& world) {
  std::vector<float> mine, theirs(static_cast<std::size_t>(world.size()));
  for (int s = 0; s < world.size(); ++s) mine.push_back(static_cast<float>(10 * world.rank() + s));
  world.all_to_all(view(theirs), view(mine));
  return theirs;
}

// What the neighbour to the left has sent. Both at once: were every rank to receive first, all
// would wait for ever.
float from_the_left(Group& world) {
  const int right = (world.rank() + 1) % world.size();
  const int left = (world.rank() + world.size() - 1) % world.size();
  if (left == world.rank()) return static_cast<float>(world.rank());
  std::vector<float> out = {static_cast<float>(world.rank())}, in = {0};
  const auto sent = world.async().send(view(out), right);
  const auto received = world.async().receive(view(in), left);
  sent.wait();
  received.wait();
  return in[0];
}

}  // namespace

int main() {
  try {
    Group world = lockstep::init();
    const float mean = mean_of_ranks(world);
    const float sum = sum_of_row(world);
    const std::vector<float> numbers = swapped(world);
    const float left = from_the_left(world);
    fmt::print(
        "rank {} of {} over {}: mean {}, sum of the row {}, swapped [{}], from the left {}\n",
        world.rank(), world.size(), world.transport_name(), mean, sum, fmt::join(numbers, ", "),
        left);
    return 0;
  } catch (const lockstep::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}

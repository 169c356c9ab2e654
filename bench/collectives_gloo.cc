// One rank of bench/collectives on Gloo, as PyTorch uses it: c10d::ProcessGroupGloo.
// RANK, WORLD_SIZE, GLOO_STORE (a file that all ranks can reach) and GLOO_INTERFACE are set.
#include <ATen/Parallel.h>
#include <torch/types.h>
#include <torch/version.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/collectives_loop.h"

namespace {

using lockstep::bench::Buffers;
using lockstep::bench::Collective;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) throw std::runtime_error(std::string(name) + " is not set");
  return value;
}

class Gloo final : public lockstep::bench::System {
 public:
  Gloo() : rank_(std::stoi(variable("RANK"))), size_(std::stoi(variable("WORLD_SIZE"))) {
    auto options = c10d::ProcessGroupGloo::Options::create();
    options->devices.push_back(
        c10d::ProcessGroupGloo::createDeviceForInterface(variable("GLOO_INTERFACE")));
    auto store = c10::make_intrusive<c10d::FileStore>(variable("GLOO_STORE"), size_);
    group_ = c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank_, size_, options);
  }

  std::string version() const override { return "LibTorch " TORCH_VERSION; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }

  float* allocate(std::size_t bytes, lockstep::bench::Memory) override {
    return lockstep::bench::ordinary_memory(bytes);
  }

  void call(Collective collective, const Buffers& buffers) override {
    use(buffers);
    switch (collective) {
      case Collective::all_reduce:
        group_->allreduce(whole_)->wait();
        return;
      case Collective::broadcast:
        group_->broadcast(whole_)->wait();
        return;
      case Collective::all_gather:
        group_->allgather(parts_of_whole_, part_)->wait();
        return;
      case Collective::reduce_scatter:
        throw std::runtime_error("ProcessGroupGloo has no reduce_scatter");
    }
  }

 private:
  // Tensors are made once for a buffer, as a program would.
  void use(const Buffers& buffers) {
    if (buffers.whole == used_.whole && buffers.whole_count == used_.whole_count) return;
    used_ = buffers;
    whole_ = {torch::from_blob(buffers.whole, {buffers.whole_count}, torch::kFloat)};
    if (buffers.part == nullptr) return;
    part_ = {torch::from_blob(buffers.part, {buffers.whole_count / size_}, torch::kFloat)};
    parts_of_whole_ = {whole_[0].chunk(size_)};
  }

  const int rank_;
  const int size_;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
  Buffers used_;
  std::vector<torch::Tensor> whole_, part_;
  std::vector<std::vector<torch::Tensor>> parts_of_whole_;
};

}  // namespace

int main(int argc, char** argv) {
  try {
    at::set_num_threads(1);
    Gloo system;
    return lockstep::bench::measure(system, argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "collectives_gloo: %s\n", error.what());
    return 1;
  }
}

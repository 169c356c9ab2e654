// One rank of bench/collectives on Lockstep; started by `lockstep run`, or by hand on several
// hosts.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/collectives_loop.h"
#include "lockstep/base/version.h"
#include "lockstep/group/group.h"

namespace {

using lockstep::DType;
using lockstep::TensorView;
using lockstep::bench::Buffers;
using lockstep::bench::Collective;

template <class AnyGroup>
void reduce_scatter(AnyGroup& group, TensorView part, TensorView whole) {
  if constexpr (requires { group.reduce_scatter(part, whole, lockstep::Reduce::sum); }) {
    group.reduce_scatter(part, whole, lockstep::Reduce::sum);
  } else {
    throw std::runtime_error("this version has no reduce_scatter");
  }
}

class Lockstep final : public lockstep::bench::System {
 public:
  std::string version() const override { return std::string(lockstep::kVersion); }
  int rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }

  float* allocate(std::size_t bytes, lockstep::bench::Memory memory) override {
    if (memory == lockstep::bench::Memory::own) return lockstep::bench::ordinary_memory(bytes);
    blocks_.push_back(group_.allocate(bytes));
    return reinterpret_cast<float*>(blocks_.back()->data());
  }

  void call(Collective collective, const Buffers& buffers) override {
    const TensorView whole{buffers.whole, buffers.whole_count, DType::f32};
    const TensorView part{buffers.part, buffers.whole_count / group_.size(), DType::f32};
    switch (collective) {
      case Collective::all_reduce:
        return group_.all_reduce(whole);
      case Collective::broadcast:
        return group_.broadcast(whole, 0);
      case Collective::all_gather:
        return group_.all_gather(whole, part);
      case Collective::reduce_scatter:
        return reduce_scatter(group_, part, whole);
    }
  }

 private:
  lockstep::Group group_ = lockstep::init();
  std::vector<std::shared_ptr<lockstep::SharedBlock>> blocks_;
};

}  // namespace

int main(int argc, char** argv) {
  try {
    Lockstep system;
    return lockstep::bench::measure(system, argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "collectives_lockstep: %s\n", error.what());
    return 1;
  }
}

// One rank of bench/ddp on Lockstep. Kinds:
//   ddp            DistributedDataParallel as it comes
//   small_buckets  with buckets of 64 KiB: hardly anything is left to reduce when the last gradient
//                  of a backward pass is there
#include "bench/ddp_loop.h"
#include "lockstep/base/version.h"
#include "lockstep/torch.h"

namespace {

using lockstep::bench::Averaging;

class Ddp final : public Averaging {
 public:
  Ddp(std::shared_ptr<torch::nn::Module> module, lockstep::Group& group,
      const lockstep::DistributedOptions& options)
      : ddp_(std::move(module), group, options) {}

  void finish() override {}  // backward() has done it
  std::optional<double> exposed_ms() const override { return ddp_.last_step().exposed_comm_ms; }

 private:
  lockstep::DistributedDataParallel ddp_;
};

class Lockstep final : public lockstep::bench::TrainingSystem {
 public:
  std::string version() const override { return lockstep::kVersion; }
  int rank() const override { return group_.rank(); }
  void barrier() override { group_.barrier(); }

  std::unique_ptr<Averaging> average(const std::string& kind,
                                     std::shared_ptr<torch::nn::Module> module) override {
    lockstep::DistributedOptions options;
    if (kind == "small_buckets") {
      options.bucket_bytes_max = 64 << 10;
    } else if (kind != "ddp") {
      throw std::runtime_error("no kind '" + kind + "'");
    }
    return std::make_unique<Ddp>(std::move(module), group_, options);
  }

 private:
  lockstep::Group group_ = lockstep::init();
};

}  // namespace

int main(int argc, char** argv) {
  return lockstep::bench::train([] { return std::make_unique<Lockstep>(); }, argc, argv);
}

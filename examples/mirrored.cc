// mnist_distributed.cc with ranks that are threads of one process: no launcher. The model has a
// batch normalization, which is over the batches of all ranks together.
//
//   mirrored [ranks] [epochs]
#include <lockstep/torch.h>
#include <torch/torch.h>

#include <cstdlib>
#include <iostream>

#include "fashion_mnist.h"

struct Net : torch::nn::Module {
  Net() {
    register_module("hidden", hidden);
    register_module("norm", norm);
    register_module("out", out);
  }
  torch::Tensor forward(torch::Tensor x) { return out(torch::relu(norm(hidden(x.flatten(1))))); }

  torch::nn::Linear hidden{784, 256}, out{256, 10};
  lockstep::SyncBatchNorm norm{256};
};

// One rank's training; the mean loss of its last epoch.
double train(lockstep::Group& group, FashionMnist& dataset, int epochs) {
  auto net = std::make_shared<Net>();  // rank 0's weights reach all (docs/mirrored.md: seeds)
  lockstep::convert_sync_batch_norm(net, group);
  lockstep::DistributedDataParallel ddp(net, group);
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  auto batches = lockstep::shard(dataset, group, {.batch = 128});
  double mean = 0;
  for (int epoch = 0; epoch < epochs; ++epoch) {
    batches.set_epoch(epoch);
    double sum = 0;
    int steps = 0;
    for (auto& batch : batches) {
      optimizer.zero_grad();
      auto loss = torch::nn::functional::cross_entropy(net->forward(batch.data), batch.target);
      (loss * batch.weight).backward();
      optimizer.step();
      sum += loss.item<double>();
      ++steps;
    }
    mean = sum / steps;
    if (group.rank() == 0) std::cout << "epoch " << epoch + 1 << ": loss " << mean << std::endl;
  }
  return mean;
}

int main(int argc, char** argv) {
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 2;
  const int epochs = argc > 2 ? std::atoi(argv[2]) : 3;
  FashionMnist dataset("train");  // one for all ranks: they only read it
  const auto losses = lockstep::mirrored(
      ranks, [&](lockstep::Group& group) { return train(group, dataset, epochs); });
  for (std::size_t rank = 0; rank < losses.size(); ++rank) {
    std::cout << "rank " << rank << " of " << losses.size() << ": " << losses[rank] << std::endl;
  }
}

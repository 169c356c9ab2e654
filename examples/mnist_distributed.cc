// mnist_single.cc on many ranks: lockstep run -n 2 -- mnist_distributed
#include <lockstep/torch.h>
#include <torch/torch.h>

#include <cstdlib>
#include <iostream>

#include "fashion_mnist.h"

struct Net : torch::nn::Module {
  Net() {
    register_module("hidden", hidden);
    register_module("out", out);
  }
  torch::Tensor forward(torch::Tensor x) { return out(torch::relu(hidden(x.flatten(1)))); }

  torch::nn::Linear hidden{784, 256}, out{256, 10};
};

int main(int argc, char** argv) {
  const int epochs = argc > 1 ? std::atoi(argv[1]) : 3;
  auto group = lockstep::init();
  FashionMnist dataset("train");
  auto net = std::make_shared<Net>();
  lockstep::DistributedDataParallel ddp(net, group);
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  auto batches = lockstep::shard(dataset, group, {.batch = 128});
  for (int epoch = 0; epoch < epochs; ++epoch) {
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
    if (group.rank() == 0)
      std::cout << "epoch " << epoch + 1 << ": loss " << sum / steps << std::endl;
  }
}

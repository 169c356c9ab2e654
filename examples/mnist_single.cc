// The smallest LibTorch program that trains a model: one process.
// mnist_distributed.cc is the same program on many ranks; compare the two.
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
  FashionMnist dataset("train");
  auto net = std::make_shared<Net>();
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  auto batches = torch::data::make_data_loader(dataset.map(torch::data::transforms::Stack<>()),
                                               /*batch_size=*/128);
  for (int epoch = 0; epoch < epochs; ++epoch) {
    double sum = 0;
    int steps = 0;
    for (auto& batch : *batches) {
      optimizer.zero_grad();
      auto loss = torch::nn::functional::cross_entropy(net->forward(batch.data), batch.target);
      loss.backward();
      optimizer.step();
      sum += loss.item<double>();
      ++steps;
    }
    std::cout << "epoch " << epoch + 1 << ": loss " << sum / steps << std::endl;
  }
}

// Trains a TorchScript module that Python has written (torch.jit.script(net).save("net.pt")):
//   lockstep run -n 2 -- torchscript net.pt trained.pt
// It takes rows of numbers and learns their sum.
#include <lockstep/torch.h>
#include <torch/script.h>
#include <torch/torch.h>

#include <iostream>

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: torchscript MODULE OUTPUT" << std::endl;
    return 2;
  }
  auto group = lockstep::init();
  torch::jit::Module net = torch::jit::load(argv[1]);
  net.train();
  lockstep::DistributedDataParallel ddp(net, group);
  std::vector<torch::Tensor> parameters;
  for (const auto& parameter : net.parameters()) parameters.push_back(parameter);
  torch::optim::Adam optimizer(parameters, torch::optim::AdamOptions(0.01));
  torch::manual_seed(group.rank());
  double loss = 0;
  for (int step = 0; step < 200; ++step) {
    const auto input = torch::rand({64, 8});
    optimizer.zero_grad();
    auto error = torch::mse_loss(net.forward({input}).toTensor(), input.sum(1, true));
    error.backward();
    optimizer.step();
    loss = error.item<double>();
  }
  if (group.rank() == 0) {
    net.save(argv[2]);
    std::cout << "loss " << loss << std::endl;
  }
}

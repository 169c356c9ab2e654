// Ranks that have different numbers of batches, none of which is left out or repeated:
//   lockstep run -n 3 -- uneven_data
#include <lockstep/torch.h>
#include <torch/torch.h>

#include <iostream>

int main() {
  auto group = lockstep::init();
  auto net = std::make_shared<torch::nn::LinearImpl>(16, 1);
  lockstep::DistributedDataParallel ddp(net, group, {.weighting = lockstep::Weighting::samples});
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.01).momentum(0.9));
  const auto truth = torch::arange(16, torch::kFloat).view({16, 1}) / 16;
  torch::manual_seed(group.rank());
  const int batches = 1000 + 100 * group.rank();
  ddp.join(
      [&] {
        for (int i = 0; i < batches; ++i) {
          const auto input = torch::randn({1 + i % 32, 16});  // batches differ in size, too
          optimizer.zero_grad();
          ddp.add_samples(input.size(0));
          auto error = net->forward(input) - input.matmul(truth);
          error.square().sum().backward();
          optimizer.step();
        }
      },
      {.step = [&] { optimizer.step(); }});
  const auto distance = (net->weight.detach().t() - truth).abs().max().item<double>();
  std::cout << "rank " << group.rank() << ": " << batches << " batches, largest error " << distance
            << std::endl;
}

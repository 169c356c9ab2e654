// Batches of 4 × 32 samples a rank, in pieces that fit in memory:
//   lockstep run -n 2 -- accumulation
#include <lockstep/torch.h>
#include <torch/torch.h>

#include <iostream>

int main() {
  constexpr int kPieces = 4;
  auto group = lockstep::init();
  auto net = std::make_shared<torch::nn::LinearImpl>(16, 1);
  lockstep::DistributedDataParallel ddp(net, group, {.accumulate = kPieces});
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  const auto truth = torch::arange(16, torch::kFloat).view({16, 1}) / 16;
  torch::manual_seed(group.rank());
  double loss = 0;
  for (int piece = 0; piece < 100 * kPieces; ++piece) {
    const auto input = torch::randn({32, 16});
    auto error = torch::mse_loss(net->forward(input), input.matmul(truth));
    error.backward();  // every 4th call reduces
    if (!ddp.is_reduced()) continue;
    optimizer.step();
    optimizer.zero_grad();
    loss = error.item<double>();
  }
  if (group.rank() == 0) std::cout << "loss " << loss << std::endl;
}

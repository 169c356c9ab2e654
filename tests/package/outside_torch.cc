#include <lockstep/torch.h>
#include <torch/torch.h>

int main() {
  lockstep::Group group = lockstep::init();
  torch::nn::Linear net(3, 2);
  lockstep::DistributedDataParallel ddp(net, group);
  net(torch::ones({4, 3}) * group.rank()).sum().backward();
  return net->weight.grad().defined() ? 0 : 1;
}

#include <lockstep/lockstep.h>

#include <cstdio>

int main() {
  lockstep::Group group = lockstep::init();
  float value = 1;
  group.all_reduce({&value, 1, lockstep::DType::f32});
  std::printf("rank %d of %d: %g\n", group.rank(), group.size(), static_cast<double>(value));
  return value == static_cast<float>(group.size()) ? 0 : 1;
}

// A rank for the tests of this folder. probe MODE [ELEMENTS]
//   sum    one all_reduce of rank + 1, prints "rank R of N: SUM over TRANSPORT"
//   loop   all_reduces without end; prints "looping" after the first; an error ends it
//   part   all_reduces without end in a group of the ranks but 0, while rank 0 waits for it in one
//          of all; prints "looping"
//   leave  one all_reduce, then rank 0 ends in good order while the others want another
//   exit   one all_reduce, then rank 0 calls exit(0) without ending its group
//   throw  rank 1 throws in its fifth step what nobody catches
//   exit3  rank 1 exits with 3 in its fifth step
//   wait   four all_reduces, prints "ready"; then rank 1 waits for a byte (or the end) of standard
//          input before its fifth, and rank 2 waits for one between submitting it and waiting
//   differ four all_reduces; in the fifth rank 1 has 2 elements fewer
//   sleep  joins, prints "joined", and waits to be killed
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include "lockstep/lockstep.h"

namespace {

using namespace lockstep;

void say(const std::string& text) {
  std::puts(text.c_str());
  std::fflush(stdout);
}

void run(const std::string& mode, std::size_t elements) {
  Group group = init();
  std::vector<float> values(elements);
  const auto reduce = [&] {
    values.assign(elements, static_cast<float>(group.rank() + 1));
    group.all_reduce({values.data(), static_cast<std::int64_t>(elements), DType::f32});
  };
  if (mode == "sleep") {
    say("joined");
    ::pause();
  }
  reduce();
  if (mode == "sum") {
    say(fmt::format("rank {} of {}: {} over {}", group.rank(), group.size(), values.back(),
                    group.transport_name()));
  } else if (mode == "loop") {
    say("looping");
    while (true) reduce();
  } else if (mode == "part") {
    auto part = group.split(group.rank() == 0 ? 0 : 1);
    say("looping");
    if (group.rank() == 0) return reduce();
    while (true) part->all_reduce({values.data(), static_cast<std::int64_t>(elements), DType::f32});
  } else if (mode == "leave") {
    if (group.rank() != 0) reduce();
  } else if (mode == "throw" || mode == "exit3") {
    for (int step = 1; step < 5; ++step) reduce();
    if (group.rank() == 1 && mode == "exit3") std::exit(3);
    if (group.rank() == 1) throw std::runtime_error("the user's own mistake");
    reduce();
  } else if (mode == "wait" || mode == "differ") {
    for (int i = 1; i < 4; ++i) reduce();
    if (mode == "differ") {
      if (group.rank() == 1) elements -= 2;
      return reduce();
    }
    say("ready");
    if (group.rank() == 1) std::getchar();
    if (group.rank() != 2) return reduce();
    const Work work =
        group.async().all_reduce({values.data(), static_cast<std::int64_t>(elements), DType::f32});
    std::getchar();
    work.wait();
  } else if (mode == "exit") {
    if (group.rank() == 0) std::exit(0);
    reduce();
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  try {
    run(argv[1], argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 1000);
    return 0;
  } catch (const lockstep::Error& error) {
    std::fprintf(stderr, "%s: %s\n", std::string(lockstep::to_string(error.code())).c_str(),
                 error.what());
    return 1;
  }
}

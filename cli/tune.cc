#include <fmt/format.h>

#include <cstdio>
#include <string>

#include "cli/commands.h"
#include "lockstep/base/error.h"
#include "lockstep/env/files.h"
#include "lockstep/tune/measure.h"

namespace lockstep::cli {
namespace {

void print_help() {
  fmt::print(
      "Measures what messages, memory and barriers cost on this machine, between two ranks that "
      "it\nstarts itself. The choice of algorithms goes by these prices.\n\n"
      "Usage: lockstep tune [--out FILE]\n\n"
      "  --out FILE  writes them there; LOCKSTEP_TUNING=FILE makes a job use them\n"
      "              (docs/settings.md). Without it they are printed as JSON\n");
}

void print_prices(const Prices& prices) {
  fmt::print("a message       {:.2f} µs on its way, {:.2f} µs of its sender\n", prices.latency_us,
             prices.message_us);
  const auto rate = [](double byte_us) { return byte_us > 0 ? 1e-3 / byte_us : 0; };
  fmt::print("bytes           {:.2f} GB/s each way over loopback TCP\n", rate(prices.byte_us));
  fmt::print("adding          {:.2f} GB/s of contributions\n", rate(prices.reduced_byte_us));
  fmt::print("copying         {:.2f} GB/s\n", rate(prices.copied_byte_us));
  fmt::print("a barrier       {:.2f} µs in shared memory\n", prices.barrier_us);
}

}  // namespace

int tune_command(int argc, char** argv) {
  std::string out;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--help" || argument == "-h") {
      print_help();
      return 0;
    }
    if (argument != "--out" || i + 1 == argc) {
      fmt::print(stderr, "lockstep tune: {} '{}'; `lockstep tune --help`\n",
                 argument == "--out" ? "no file after" : "unknown argument", argument);
      return 2;
    }
    out = argv[++i];
  }
  try {
    const Prices prices = measure_prices();
    if (out.empty()) {
      fmt::print("{}", to_json(prices));
      return 0;
    }
    write_file_atomically(out, to_json(prices));
    print_prices(prices);
    fmt::print("written to {}; LOCKSTEP_TUNING={} makes a job use it\n", out, out);
    return 0;
  } catch (const Error& error) {
    fmt::print(stderr, "lockstep tune: {}\n", error.what());
    return 1;
  }
}

}  // namespace lockstep::cli

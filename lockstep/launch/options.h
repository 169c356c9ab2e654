// What `lockstep run` can be asked for.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

// Which lines of the ranks' output name their rank.
enum class PrefixMode {
  automatic,  // all lines from the moment that another rank than 0 prints
  always,
  never,
};

inline constexpr int kRanksMax = 4096;

struct LaunchOptions {
  int ranks = 0;           // 0: as many as this process has usable cores
  std::uint16_t port = 0;  // of rank 0's store on 127.0.0.1; 0: any free one
  bool pin = true;
  bool encrypt = false;
  PrefixMode prefix = PrefixMode::automatic;
  std::string log_dir;                    // empty: no files
  std::chrono::milliseconds grace{1000};  // between the first signal to the ranks and SIGKILL
  std::vector<std::string> command;       // the program and its arguments, never empty
  bool help = false;                      // nothing else counts then
};

// Parses what follows `lockstep run`: options, then the program, which a "--" may precede; from the
// program on, nothing is taken as an option. Throws Error(invalid_argument) naming the argument,
// what is allowed, and the nearest known option.
LaunchOptions parse_launch_options(std::span<const std::string> arguments);

std::string launch_help();

}  // namespace lockstep

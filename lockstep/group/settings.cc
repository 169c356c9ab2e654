#include "lockstep/group/settings.h"

#include <algorithm>
#include <cstdlib>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/env/files.h"
#include "lockstep/plan/algorithms.h"

namespace lockstep {

namespace {

constexpr int kRanksMax = 65'536;
constexpr int kSecondsMax = 1'000'000;

class Reader {
 public:
  explicit Reader(const Settings::Lookup& lookup) : lookup_(lookup) {}

  bool has(const char* name) const { return lookup_(name).has_value(); }

  std::string text(const char* name, const char* needed_for) const {
    const auto value = lookup_(name);
    if (!value) {
      fail(Code::invalid_argument,
           "{} is not set; a group needs {}. Start the program with `lockstep run` or torchrun, or "
           "set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT",
           name, needed_for);
    }
    if (value->empty()) fail(Code::invalid_argument, "{} is set but empty", name);
    return *value;
  }

  int number(const char* name, const char* needed_for, int min, int max) const {
    return parse(name, text(name, needed_for), min, max);
  }

  std::optional<int> optional_number(const char* name, int min, int max) const {
    const auto value = lookup_(name);
    if (!value) return std::nullopt;
    return parse(name, *value, min, max);
  }

 private:
  static int parse(const char* name, const std::string& value, int min, int max) {
    const auto number = parse_integer(value, min, max);
    if (!number) {
      fail(Code::invalid_argument, "{}='{}' is not a whole number from {} to {}", name, value, min,
           max);
    }
    return static_cast<int>(*number);
  }

  const Settings::Lookup& lookup_;
};

Transport parse_transport(const std::string& value) {
  if (value == "auto") return Transport::automatic;
  if (value == "shm") return Transport::shm;
  if (value == "tcp") return Transport::tcp;
  fail(Code::invalid_argument, "LOCKSTEP_TRANSPORT='{}' is none of auto, shm, tcp", value);
}

bool parse_switch(const char* name, const std::string& value) {
  if (value == "1" || value == "0" || value.empty()) return value == "1";
  fail(Code::invalid_argument, "{}='{}' is neither 0 nor 1", name, value);
}

std::string parse_record_folder(const Settings::Lookup& lookup) {
  if (const auto folder = lookup("LOCKSTEP_RECORD")) {
    if (folder->empty()) {
      fail(Code::invalid_argument,
           "LOCKSTEP_RECORD is set but empty; it is a folder, or none to write no records");
    }
    return *folder == "none" ? "" : *folder;
  }
  const std::string temporary = lookup("TMPDIR").value_or("");
  return temporary.empty() ? "/tmp" : temporary;
}

// "all_reduce=ring,broadcast=chain"
std::map<Operation, std::string> parse_algorithms(const std::string& value) {
  std::map<Operation, std::string> chosen;
  for (std::size_t begin = 0; begin < value.size();) {
    const std::size_t end = std::min(value.find(',', begin), value.size());
    const std::string item = value.substr(begin, end - begin);
    const std::size_t equals = item.find('=');
    const std::string name = item.substr(0, equals);
    const Algorithm* found = nullptr;
    std::string known;
    for (const Algorithm& algorithm : algorithms()) {
      if (to_string(algorithm.operation) != name) continue;
      known += fmt::format("{}{}", known.empty() ? "" : ", ", algorithm.name);
      if (equals != std::string::npos && algorithm.name == item.substr(equals + 1)) {
        found = &algorithm;
      }
    }
    if (found == nullptr) {
      fail(Code::invalid_argument,
           "LOCKSTEP_ALGORITHM='{}': '{}' is no OPERATION=ALGORITHM that there is{}", value, item,
           known.empty() ? "" : fmt::format(" ({} has {})", name, known));
    }
    chosen[found->operation] = found->name;
    begin = end + 1;
  }
  return chosen;
}

Order parse_order(const std::string& value) {
  if (value == "canonical" || value == "any") return value == "any" ? Order::any : Order::canonical;
  fail(Code::invalid_argument, "LOCKSTEP_ORDER='{}' is none of canonical, any", value);
}

void read_local(const Reader& read, Settings& settings) {
  settings.local_world_size = read.optional_number("LOCAL_WORLD_SIZE", 1, settings.world_size);
  settings.local_rank = read.optional_number("LOCAL_RANK", 0, kRanksMax - 1);
  if (settings.local_rank && settings.local_world_size &&
      *settings.local_rank >= *settings.local_world_size) {
    fail(Code::invalid_argument, "LOCAL_RANK='{}' is not below LOCAL_WORLD_SIZE='{}'",
         *settings.local_rank, *settings.local_world_size);
  }
}

}  // namespace

Prices read_prices(const std::string& variable, const std::string& file) {
  constexpr std::size_t kBytesMax = 64 << 10;
  try {
    return parse_prices(read_file(file, kBytesMax));
  } catch (const Error& error) {
    fail(Code::invalid_argument, "{}='{}': {}; `lockstep tune --out FILE` writes such a file",
         variable, file, error.what());
  }
}

Settings Settings::from(const Lookup& lookup) {
  const Reader read(lookup);
  Settings settings;
  if (const auto secret = lookup("LOCKSTEP_SECRET")) settings.secret = *secret;
  if (const auto encrypt = lookup("LOCKSTEP_ENCRYPT")) {
    settings.encrypt = parse_switch("LOCKSTEP_ENCRYPT", *encrypt);
  }
  if (const auto chosen = lookup("LOCKSTEP_ALGORITHM")) {
    settings.algorithms = parse_algorithms(*chosen);
  }
  if (const auto order = lookup("LOCKSTEP_ORDER")) settings.order = parse_order(*order);
  if (const auto file = lookup("LOCKSTEP_TUNING")) {
    settings.prices = read_prices("LOCKSTEP_TUNING", *file);
  }
  settings.interface = lookup("LOCKSTEP_INTERFACE").value_or("");
  if (const auto transport = lookup("LOCKSTEP_TRANSPORT")) {
    settings.transport = parse_transport(*transport);
  }
  if (const auto seconds = read.optional_number("LOCKSTEP_TIMEOUT", 1, kSecondsMax)) {
    settings.operation_timeout = std::chrono::seconds(*seconds);
  }
  if (const auto seconds = read.optional_number("LOCKSTEP_JOIN_TIMEOUT", 1, kSecondsMax)) {
    settings.join_timeout = std::chrono::seconds(*seconds);
  }
  if (const auto seconds = read.optional_number("LOCKSTEP_STALL_AFTER", 1, kSecondsMax)) {
    settings.stall_after = std::chrono::seconds(*seconds);
  }
  settings.record_folder = parse_record_folder(lookup);
  // OMP_NUM_THREADS may be a list or garbage, which is OpenMP's to judge.
  if (const auto threads = lookup("OMP_NUM_THREADS")) {
    settings.compute_threads = static_cast<int>(parse_integer(*threads, 1, kRanksMax).value_or(0));
  }
  bool any = false;
  for (const char* name :
       {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
    any = any || read.has(name);
  }
  if (!any) return settings;

  settings.world_size = read.number("WORLD_SIZE", "the number of ranks", 1, kRanksMax);
  settings.rank = read.number("RANK", "this process's number", 0, settings.world_size - 1);
  settings.master_addr = read.text("MASTER_ADDR", "the host of rank 0");
  settings.master_port =
      static_cast<std::uint16_t>(read.number("MASTER_PORT", "the port of rank 0", 1, 65'535));
  // torchrun's agent keeps a store of its own on MASTER_PORT and says so.
  if (lookup("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True") {
    settings.master_port = static_cast<std::uint16_t>(settings.master_port % 65'535 + 1);
  }
  if (const auto fd = read.optional_number("LOCKSTEP_STORE_FD", 3, 1 << 20))
    settings.store_fd = *fd;
  read_local(read, settings);
  return settings;
}

Settings Settings::from_environment() {
  return from([](const char* name) -> std::optional<std::string> {
    const char* value = std::getenv(name);
    if (value == nullptr) return std::nullopt;
    return value;
  });
}

}  // namespace lockstep

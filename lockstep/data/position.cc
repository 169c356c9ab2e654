#include "lockstep/data/position.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"

namespace lockstep {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::uint64_t kVersion = 1;
constexpr const char* kVersionMember = "lockstep_data_position";

[[noreturn]] void fail_corrupt(std::string_view problem, std::string_view text) {
  constexpr std::size_t kShown = 200;
  fail(Code::corrupt, "a data position {}: '{}'{}", problem, text.substr(0, kShown),
       text.size() > kShown ? " …" : "");
}

std::uint64_t natural(const Json& json, const char* name, std::uint64_t max,
                      std::string_view text) {
  const auto found = json.find(name);
  if (found == json.end() || !found->is_number_unsigned() || found->get<std::uint64_t>() > max) {
    fail_corrupt(fmt::format("needs {}, a whole number in [0, {}]", name, max), text);
  }
  return found->get<std::uint64_t>();
}

}  // namespace

std::string to_json(const DataPosition& position) {
  return Json{{kVersionMember, kVersion},
              {"epoch", position.epoch},
              {"samples_done", position.samples_done},
              {"sample_count", position.sample_count},
              {"seed", position.seed},
              {"shuffle", position.shuffle}}
      .dump();
}

DataPosition position_of_json(std::string_view text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) fail_corrupt("must be a JSON object", text);
  constexpr auto kMax = std::numeric_limits<std::uint64_t>::max();
  constexpr auto kSignedMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  const std::uint64_t version = natural(json, kVersionMember, kMax, text);
  if (version != kVersion) {
    fail(Code::unsupported,
         "a data position of format version {}: this release of Lockstep reads version {}", version,
         kVersion);
  }
  DataPosition position;
  const auto read = [&](const char* name) {
    return static_cast<std::int64_t>(natural(json, name, kSignedMax, text));
  };
  position.epoch = read("epoch");
  position.samples_done = read("samples_done");
  position.sample_count = read("sample_count");
  position.seed = natural(json, "seed", kMax, text);
  const auto shuffle = json.find("shuffle");
  if (shuffle == json.end() || !shuffle->is_boolean()) {
    fail_corrupt("needs shuffle, true or false", text);
  }
  position.shuffle = shuffle->get<bool>();
  if (position.samples_done > 0 && position.samples_done >= position.sample_count) {
    fail_corrupt(
        fmt::format("has {} samples done of {}", position.samples_done, position.sample_count),
        text);
  }
  return position;
}

}  // namespace lockstep

#include "lockstep/plan/cost.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"

namespace lockstep {

namespace {

constexpr double kPriceMax = 1e9;

struct Key {
  const char* name;
  double Prices::*price;
};
constexpr Key kKeys[] = {
    {"latency_us", &Prices::latency_us},
    {"message_us", &Prices::message_us},
    {"byte_us", &Prices::byte_us},
    {"reduced_byte_us", &Prices::reduced_byte_us},
    {"copied_byte_us", &Prices::copied_byte_us},
    {"barrier_us", &Prices::barrier_us},
};

}  // namespace

double predict_us(const Cost& cost, std::int64_t element_bytes, const Prices& prices) {
  const auto bytes = static_cast<double>(element_bytes);
  return cost.rounds * prices.latency_us + cost.messages * prices.message_us +
         cost.sent_count * bytes * prices.byte_us +
         cost.reduced_count * bytes * prices.reduced_byte_us;
}

std::string to_json(const Prices& prices) {
  nlohmann::ordered_json json;
  for (const Key& key : kKeys) json[key.name] = prices.*key.price;
  return json.dump(2) + "\n";
}

Prices parse_prices(std::string_view text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) fail(Code::invalid_argument, "is not a JSON object of prices");
  Prices prices;
  for (const Key& key : kKeys) {
    const auto found = json.find(key.name);
    if (found == json.end()) fail(Code::invalid_argument, "'{}' is missing", key.name);
    const double value = found->is_number() ? found->get<double>() : -1;
    if (!(value >= 0 && value <= kPriceMax)) {
      fail(Code::invalid_argument, "'{}' is {}, not a number from 0 to {:g}", key.name,
           found->dump(), kPriceMax);
    }
    prices.*key.price = value;
  }
  for (const auto& [name, value] : json.items()) {
    const bool known = std::ranges::any_of(kKeys, [&](const Key& key) { return key.name == name; });
    if (!known) fail(Code::invalid_argument, "'{}' is no price", name);
  }
  return prices;
}

}  // namespace lockstep

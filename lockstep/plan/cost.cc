#include "lockstep/plan/cost.h"

namespace lockstep {

double predict_us(const Cost& cost, std::int64_t element_bytes, const Prices& prices) {
  const auto bytes = static_cast<double>(element_bytes);
  return cost.rounds * prices.latency_us + cost.messages * prices.message_us +
         cost.sent_count * bytes * prices.byte_us +
         cost.reduced_count * bytes * prices.reduced_byte_us;
}

}  // namespace lockstep

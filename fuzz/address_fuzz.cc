// What ranks tell each other in an exchange: where they listen, where their memory is.
#include <cstddef>
#include <cstdint>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/group/mesh.h"
#include "lockstep/transport/arena.h"
#include "lockstep/transport/interface.h"
#include "lockstep/transport/wire.h"

namespace {

using namespace lockstep;

template <class Call>
void expect_corrupt(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    LOCKSTEP_CHECK(error.code() == Code::corrupt);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  const std::string text(reinterpret_cast<const char*>(data), bytes);
  expect_corrupt([&] {
    const SocketAddress address = address_from_wire(text);
    LOCKSTEP_CHECK(address_from_wire(address_to_wire(address)).port == address.port);
  });
  expect_corrupt([&] {
    const auto address = SharedMemory::Address::from_wire(text);
    LOCKSTEP_CHECK(address.to_wire() == text);
  });
  expect_corrupt([&] {
    WireReader reader(text);
    while (reader.left() > 0) reader.get_text();
  });
  try {
    choose_address({{"lo", true, {"127.0.0.1", "::1"}}, {"a", true, {"fe80::1%a"}}}, text, text);
  } catch (const Error& error) {
    LOCKSTEP_CHECK(error.code() == Code::invalid_argument);
  }
  return 0;
}

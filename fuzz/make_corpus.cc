// make_corpus FOLDER: writes the seeds of every fuzzer, made by the encoders, into
// FOLDER/<fuzzer>/.
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>

#include "lockstep/data/position.h"
#include "lockstep/group/mesh.h"
#include "lockstep/rendezvous/frames.h"
#include "lockstep/transport/arena.h"
#include "lockstep/transport/handshake.h"
#include "lockstep/transport/tcp/message.h"
#include "lockstep/transport/wire.h"

namespace {

using namespace lockstep;

class Corpus {
 public:
  explicit Corpus(std::filesystem::path folder) : folder_(std::move(folder)) {}
  void add(const std::string& fuzzer, const std::string& bytes) {
    std::filesystem::create_directories(folder_ / fuzzer);
    std::ofstream file(folder_ / fuzzer / fmt::format("seed-{}", next_++), std::ios::binary);
    file << bytes;
    if (!file.flush()) fail(Code::io, "cannot write to {}", (folder_ / fuzzer).string());
  }

 private:
  const std::filesystem::path folder_;
  int next_ = 0;
};

void add_frames(Corpus& corpus) {
  WireWriter join;
  join.put(std::int32_t{4});
  join.put_text("process 1 on host a");
  WireWriter coded;
  coded.put(std::uint16_t{2});
  coded.put_text("why");
  std::string all;
  for (int type = 1; type <= 8; ++type) {
    const Frame frame{static_cast<FrameType>(type), type % 2 ? join.bytes() : coded.bytes()};
    corpus.add("frames_fuzz", "\xff" + encode(frame));
    all += encode(frame);
  }
  corpus.add("frames_fuzz", "\x01" + all);
}

void add_handshakes(Corpus& corpus) {
  const std::string hello = make_hello({Purpose::data, 3, 9});
  const std::string answer = make_answer(hello, "secret");
  corpus.add("handshake_fuzz", "\xff" + hello + make_proof(hello, answer, "secret"));
  corpus.add("handshake_fuzz", "\xff" + answer);
  corpus.add("handshake_fuzz", std::string("\xff\x16\x03\x01\x02\x00\x01\x00", 8));
  corpus.add("tls_fuzz", hello);
  corpus.add("tls_fuzz", std::string("\x15\x03\x03\x00\x02\x02\x46", 7));
  corpus.add("tls_fuzz", std::string("\x16\x03\x01\x00\x04\x01\x00\x00\x00", 9));
}

void add_messages(Corpus& corpus) {
  for (const std::uint64_t bytes : {0, 16, 1 << 20}) {
    Message message;
    message.bytes = bytes;
    message.operation.sequence = bytes;
    const MessageHeader header = encode_header(message);
    corpus.add("message_fuzz", {reinterpret_cast<const char*>(header.data()), header.size()});
  }
}

void add_addresses(Corpus& corpus) {
  for (const char* host : {"127.0.0.1", "fe80::1%eth0", "2001:db8::2"}) {
    corpus.add("address_fuzz", address_to_wire({host, 4711}));
    corpus.add("address_fuzz", host);
  }
  corpus.add("address_fuzz", SharedMemory::Address{1234, 7, 99, 4096}.to_wire());
  corpus.add("address_fuzz", "lo");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: make_corpus FOLDER\n";
    return 2;
  }
  Corpus corpus(argv[1]);
  add_frames(corpus);
  add_handshakes(corpus);
  add_messages(corpus);
  add_addresses(corpus);
  corpus.add("position_fuzz", to_json({.epoch = 3, .samples_done = 4, .sample_count = 5}));
}

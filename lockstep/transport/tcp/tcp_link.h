// A Link over one TCP connection. Each message is a 64-byte header and its bytes:
// docs/wire-format.md.
#pragma once

#include <deque>
#include <string>

#include "lockstep/env/fd.h"
#include "lockstep/transport/link.h"

namespace lockstep {

class TcpLink final : public Link {
 public:
  // `describe` turns an announcement into words for messages ("all_reduce number 4 of f32[10]").
  using Describe = std::string (*)(const Announcement&);
  TcpLink(Fd socket, int rank, int peer, Describe describe);

  void send(std::span<const std::byte> bytes, const Announcement& operation) override;
  void receive(std::span<std::byte> bytes, const Announcement& operation) override;
  void progress() override;
  std::int64_t sent() const override { return sent_; }
  std::int64_t received() const override { return received_; }
  int fd() const override { return socket_.get(); }
  short wanted_events() const override;

 private:
  static constexpr std::size_t kHeaderBytes = 64;

  struct Outgoing {
    char header[kHeaderBytes];
    std::span<const std::byte> bytes;
    std::size_t done = 0;  // of header and bytes together
  };
  struct Incoming {
    Announcement operation;
    std::span<std::byte> bytes;
  };

  void progress_sends();
  void progress_receives();
  bool read_some(std::byte* to, std::size_t bytes_max, std::size_t& got);
  void check_header(const Incoming& expected);
  [[noreturn]] void lost(const std::string& why) const;

  const Fd socket_;
  const int rank_;
  const int peer_;
  const Describe describe_;
  std::deque<Outgoing> outgoing_;
  std::deque<Incoming> incoming_;
  char header_[kHeaderBytes];
  std::size_t in_done_ = 0;  // of header and bytes of the first incoming message together
  std::int64_t sent_ = 0;
  std::int64_t received_ = 0;
};

}  // namespace lockstep

// A Link over one stream: a TCP connection, which is made when the first message is due, or a
// channel in shared memory. Each message is a 64-byte header and its bytes: docs/wire-format.md.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "lockstep/base/fifo.h"
#include "lockstep/transport/link.h"
#include "lockstep/transport/tcp/message.h"
#include "lockstep/transport/tcp/stream_source.h"

namespace lockstep {

class StreamLink final : public Link {
 public:
  // `describe` turns an announcement into words for messages ("all_reduce number 4 of f32[10]").
  using Describe = std::string (*)(const Announcement&);
  StreamLink(Stream stream, int rank, int peer, Describe describe);
  StreamLink(std::unique_ptr<StreamSource> source, int rank, int peer, Describe describe);
  // A question may be left that nobody reads.
  ~StreamLink() override;

  std::int64_t send(std::span<const std::byte> bytes, const Announcement& operation) override;
  std::int64_t receive(std::span<std::byte> bytes, const Announcement& operation) override;
  void ask(const Announcement& operation) override;
  void progress() override;
  std::int64_t sent() const override { return sent_; }
  std::int64_t received() const override { return received_; }
  int fd() const override { return source_ ? source_->fd() : stream_.fd(); }
  short wanted_events() const override;
  bool is_ready() const override;

 private:
  struct Outgoing {
    MessageHeader header;
    std::span<const std::byte> bytes;
    std::size_t done = 0;  // of header and bytes together
    bool question = false;
  };
  struct Incoming {
    Announcement operation;
    std::span<std::byte> bytes;
  };

  bool connect();
  void progress_sends();
  void progress_receives();
  // False for a question, which is no message.
  bool check_header(const Incoming& expected);
  void pass_over(const Incoming& message);
  [[noreturn]] void disagree(const Announcement& own, const Announcement& theirs) const;
  const Announcement& own_like(const Announcement& theirs, const Announcement& expected) const;

  const int rank_;
  const int peer_;
  const Describe describe_;
  std::unique_ptr<StreamSource> source_;  // until there is a stream
  Stream stream_;
  Fifo<Outgoing> outgoing_;
  Fifo<Incoming> incoming_;
  MessageHeader header_;
  std::size_t in_done_ = 0;  // of header and bytes of the first incoming message together
  std::int64_t sends_ = 0;   // asked for
  std::int64_t receives_ = 0;
  std::int64_t sent_ = 0;
  std::int64_t received_ = 0;
  // The last operations that were sent in: what a peer that is behind turns out to disagree with.
  static constexpr std::size_t kRemembered = 8;
  std::array<Announcement, kRemembered> sent_in_;
  std::size_t remembered_ = 0;
};

}  // namespace lockstep

#include "lockstep/transport/tcp/stream_link.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/transport/tcp/socket.h"

namespace lockstep {

StreamLink::StreamLink(Stream stream, int rank, int peer, Describe describe)
    : rank_(rank), peer_(peer), describe_(describe), stream_(std::move(stream)) {}

StreamLink::StreamLink(std::unique_ptr<StreamSource> source, int rank, int peer, Describe describe)
    : rank_(rank), peer_(peer), describe_(describe), source_(std::move(source)) {}

StreamLink::~StreamLink() {
  if (stream_.valid()) discard_unread(stream_.socket());
}

std::int64_t StreamLink::send(std::span<const std::byte> bytes, const Announcement& operation) {
  outgoing_.push({encode_header({operation, bytes.size(), false}), bytes, 0, false});
  const auto& last = sent_in_[(remembered_ + kRemembered - 1) % kRemembered];
  if (!operation.is_pairwise() && (remembered_ == 0 || last != operation)) {
    sent_in_[remembered_++ % kRemembered] = operation;
  }
  return ++sends_;
}

void StreamLink::ask(const Announcement& operation) {
  outgoing_.push({encode_header({operation, 0, true}), {}, 0, true});
}

std::int64_t StreamLink::receive(std::span<std::byte> bytes, const Announcement& operation) {
  incoming_.push({operation, bytes});
  return ++receives_;
}

short StreamLink::wanted_events() const {
  if (outgoing_.empty() && incoming_.empty()) return 0;
  if (source_) return source_->wanted_events();
  return static_cast<short>((outgoing_.empty() ? 0 : stream_.write_events()) |
                            (incoming_.empty() ? 0 : stream_.read_events()));
}

bool StreamLink::is_ready() const {
  return (!outgoing_.empty() && stream_.can_write()) || (!incoming_.empty() && stream_.can_read());
}

void StreamLink::progress() {
  if (outgoing_.empty() && incoming_.empty()) return;
  if (source_ && !connect()) return;
  try {
    progress_sends();
    progress_receives();
  } catch (const Error& error) {
    if (error.code() != Code::peer_lost) throw;
    fail(Code::peer_lost, "rank {} at {} lost its connection to rank {} at {}: {}", rank_,
         local_address(stream_.socket()).text(), peer_, peer_address(stream_.socket()).text(),
         error.what());
  }
}

bool StreamLink::connect() {
  try {
    std::optional<Stream> stream = source_->progress();
    if (!stream) return false;
    stream_ = std::move(*stream);
    make_unpaced_within_host(stream_.socket());
    source_.reset();
    return true;
  } catch (const Error& error) {
    fail(error.code(), "rank {} cannot connect to rank {}: {}", rank_, peer_, error.what());
  }
}

void StreamLink::progress_sends() {
  while (!outgoing_.empty()) {
    Outgoing& message = outgoing_.front();
    const std::size_t of_header = std::min(message.done, kMessageHeaderBytes);
    const std::size_t put = stream_.write(std::span(message.header).subspan(of_header),
                                          message.bytes.subspan(message.done - of_header));
    message.done += put;
    if (message.done < kMessageHeaderBytes + message.bytes.size()) {
      if (put == 0) return;
      continue;
    }
    if (!message.question) ++sent_;
    outgoing_.pop();
  }
}

void StreamLink::progress_receives() {
  while (!incoming_.empty()) {
    const Incoming& message = incoming_.front();
    const std::size_t of_header = std::min(in_done_, kMessageHeaderBytes);
    // Both at once, as they were sent: who sent something else is refused before anybody looks at
    // the bytes, and the operation has failed then.
    const std::size_t got = stream_.read(std::span<std::byte>(header_).subspan(of_header),
                                         message.bytes.subspan(in_done_ - of_header));
    if (got == 0) return;
    in_done_ += got;
    if (of_header < kMessageHeaderBytes) {
      while (in_done_ >= kMessageHeaderBytes && !check_header(message)) pass_over(message);
    }
    if (in_done_ < kMessageHeaderBytes) continue;
    if (in_done_ == kMessageHeaderBytes + message.bytes.size()) {
      incoming_.pop();
      in_done_ = 0;
      ++received_;
    }
  }
}

// What was read behind a question is the beginning of a message.
void StreamLink::pass_over(const Incoming& message) {
  const std::size_t behind = in_done_ - kMessageHeaderBytes;
  const std::size_t of_header = std::min(behind, kMessageHeaderBytes);
  const auto begin = message.bytes.begin();
  std::copy_n(begin, of_header, header_.begin());
  std::copy_n(begin + static_cast<std::ptrdiff_t>(of_header), behind - of_header, begin);
  in_done_ = behind;
}

bool StreamLink::check_header(const Incoming& expected) {
  const std::optional<Message> theirs = decode_header(header_);
  if (!theirs) {
    fail(Code::corrupt, "rank {} got bytes from rank {} that are no message of Lockstep", rank_,
         peer_);
  }
  const Announcement& operation = theirs->operation;
  if (theirs->question) {
    const bool same_number = operation.sequence == expected.operation.sequence;
    if (same_number && !expected.operation.is_pairwise() && operation != expected.operation) {
      disagree(expected.operation, operation);
    }
    return false;
  }
  if (operation != expected.operation || theirs->bytes != expected.bytes.size()) {
    const bool behind = !operation.is_pairwise();
    disagree(behind ? own_like(operation, expected.operation) : expected.operation, operation);
  }
  return true;
}

// A peer may still be in an operation that this rank has left, since it only had to send in it.
const Announcement& StreamLink::own_like(const Announcement& theirs,
                                         const Announcement& expected) const {
  for (std::size_t i = 0; i < std::min(remembered_, kRemembered); ++i) {
    if (sent_in_[i].sequence == theirs.sequence && sent_in_[i] != theirs) return sent_in_[i];
  }
  return expected;
}

void StreamLink::disagree(const Announcement& own, const Announcement& theirs) const {
  fail(Code::invalid_argument, "the ranks do not agree: rank {} is in {}, rank {} in {}", rank_,
       describe_(own), peer_, describe_(theirs));
}

}  // namespace lockstep

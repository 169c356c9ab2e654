#include "lockstep/launch/writer.h"

#include <limits.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace lockstep {
namespace {

// A pipe that poll calls writable takes this much without blocking.
std::size_t bytes_that_fit(int fd) {
  struct stat info {};
  const bool file = ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
  return file ? std::size_t{INT_MAX} : std::size_t{PIPE_BUF};
}

bool ready(int fd) {
  pollfd wanted{fd, POLLOUT, 0};
  return ::poll(&wanted, 1, 0) > 0;
}

}  // namespace

int OutputWriter::fd_of(Stream stream) {
  return stream == Stream::out ? STDOUT_FILENO : STDERR_FILENO;
}

void OutputWriter::write_some(std::deque<OutputMixer::Piece>& queue) {
  while (!queue.empty()) {
    const OutputMixer::Piece& piece = queue.front();
    State& state = states_[static_cast<std::size_t>(piece.stream)];
    const int fd = fd_of(piece.stream);
    if (state.error == 0) {
      if (!ready(fd)) return;
      const std::size_t bytes = std::min(piece.bytes.size() - written_, bytes_that_fit(fd));
      const ssize_t written = ::write(fd, piece.bytes.data() + written_, bytes);
      if (written < 0 && (errno == EAGAIN || errno == EINTR)) return;
      if (written < 0) state.error = errno;
      if (written > 0) written_ += static_cast<std::size_t>(written);
    }
    if (state.error != 0 || written_ == piece.bytes.size()) {
      queue.pop_front();
      written_ = 0;
    }
  }
}

std::optional<int> OutputWriter::take_error(Stream stream) {
  State& state = states_[static_cast<std::size_t>(stream)];
  if (state.error == 0 || state.told) return {};
  state.told = true;
  return state.error;
}

}  // namespace lockstep

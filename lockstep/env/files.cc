#include "lockstep/env/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "lockstep/base/error.h"
#include "lockstep/env/fd.h"

namespace lockstep {

namespace {

std::filesystem::path folder_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

// A file beside its target until it gets the target's name; removed if it never does.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::filesystem::path& beside) {
    // A name may be taken: by another process of that number on another host, or one that was
    // killed.
    constexpr int kNamesMax = 1000;
    for (int i = 0; i < kNamesMax && !fd_.valid(); ++i) {
      name_ = fmt::format("{}.part.{}.{}", beside.string(), ::getpid(), i);
      fd_ = Fd(::open(name_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
      if (!fd_.valid() && errno != EEXIST) break;
    }
    if (!fd_.valid()) fail_errno(errno, fmt::format("cannot write '{}'", beside.string()));
  }
  ~TemporaryFile() {
    if (!name_.empty()) ::unlink(name_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  int fd() const { return fd_.get(); }

  void rename_to(const std::filesystem::path& path) {
    if (::rename(name_.c_str(), path.c_str()) != 0) {
      fail_errno(errno, fmt::format("cannot write '{}'", path.string()));
    }
    name_.clear();
  }

 private:
  std::string name_;
  Fd fd_;
};

void write_all(int fd, std::string_view content, const std::filesystem::path& path) {
  while (!content.empty()) {
    const ssize_t written = ::write(fd, content.data(), content.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      fail_errno(errno, fmt::format("cannot write '{}'", path.string()));
    }
    content.remove_prefix(static_cast<std::size_t>(written));
  }
}

// So that the new name survives a power failure. A file system that cannot sync folders (EINVAL)
// gives no stronger promise, which is no error.
void sync_folder(const std::filesystem::path& folder) {
  const Fd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid() || (::fsync(fd.get()) != 0 && errno != EINVAL)) {
    fail_errno(errno, fmt::format("cannot sync folder '{}'", folder.string()));
  }
}

}  // namespace

void write_file_atomically(const std::filesystem::path& path, std::string_view content) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    fail(Code::io, "cannot write '{}': it is a folder", path.string());
  }
  TemporaryFile file(path);
  write_all(file.fd(), content, path);
  if (::fsync(file.fd()) != 0) {
    fail_errno(errno, fmt::format("cannot write '{}'", path.string()));
  }
  file.rename_to(path);
  sync_folder(folder_of(path));
}

void require_writable_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    fail(Code::io, "cannot make folder '{}': {}", folder.string(), error.message());
  }
  const std::filesystem::path probe = folder / ".lockstep-probe";
  TemporaryFile file(probe);
}

std::string read_file(const std::filesystem::path& path, std::size_t bytes_max) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) fail_errno(errno, fmt::format("cannot read '{}'", path.string()));
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) {
    fail_errno(errno, fmt::format("cannot read '{}'", path.string()));
  }
  if (S_ISDIR(status.st_mode)) fail(Code::io, "cannot read '{}': it is a folder", path.string());

  // The size is a hint only: pipes and /proc files have none.
  std::string content;
  std::size_t used = 0;
  content.resize(std::min(static_cast<std::size_t>(status.st_size), bytes_max) + 1);
  while (true) {
    if (used == content.size()) content.resize(std::min(content.size() * 2, bytes_max + 1));
    const ssize_t got = ::read(fd.get(), content.data() + used, content.size() - used);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_errno(errno, fmt::format("cannot read '{}'", path.string()));
    if (got == 0) break;
    used += static_cast<std::size_t>(got);
    if (used > bytes_max) {
      fail(Code::io, "cannot read '{}': it is larger than {} bytes", path.string(), bytes_max);
    }
  }
  content.resize(used);
  return content;
}

}  // namespace lockstep

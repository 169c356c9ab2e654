// For tests: a folder of its own for one test, gone with it.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace lockstep {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "lockstep-test.XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) std::abort();
    path_ = name;
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  // A file at `path` in it, with the folders that takes.
  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories((path_ / path).parent_path());
    std::ofstream(path_ / path) << text;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace lockstep

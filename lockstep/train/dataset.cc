#include "lockstep/train/dataset.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>

#include "lockstep/base/error.h"
#include "lockstep/env/files.h"

namespace lockstep::train {

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kSamplesMax = std::int64_t{1} << 31;
constexpr int kSideMax = 4096;

// A file that may be gzipped, read from front to back.
class ByteReader {
 public:
  explicit ByteReader(const fs::path& path) : path_(path.string()) {
    errno = 0;
    file_.reset(::gzopen(path_.c_str(), "rb"));
    if (!file_) fail_errno(errno == 0 ? ENOMEM : errno, "cannot read '" + path_ + "'");
    ::gzbuffer(file_.get(), 256 * 1024);
  }

  // Appends the next `bytes` bytes to `target`; `what` they are is for the error.
  void read(std::vector<std::uint8_t>& target, std::int64_t bytes, const char* what) {
    // Grown as bytes arrive: a damaged header must not make us ask for all memory.
    constexpr std::int64_t kStepBytes = std::int64_t{4} << 20;
    std::int64_t got_bytes = 0;
    while (got_bytes < bytes) {
      const std::int64_t want = std::min(kStepBytes, bytes - got_bytes);
      const std::size_t used = target.size();
      target.resize(used + static_cast<std::size_t>(want));
      const int got = ::gzread(file_.get(), target.data() + used, static_cast<unsigned>(want));
      if (got < 0) fail(Code::corrupt, "'{}' is damaged: {}", path_, reason());
      target.resize(used + static_cast<std::size_t>(got));
      got_bytes += got;
      if (got < want) {
        fail(Code::corrupt, "'{}' is truncated: expected {} bytes of {}, found {}{}", path_, bytes,
             what, got_bytes, end_reason());
      }
    }
  }

  void require_end() {
    std::uint8_t byte = 0;
    const int got = ::gzread(file_.get(), &byte, 1);
    if (got < 0) fail(Code::corrupt, "'{}' is damaged: {}", path_, reason());
    if (got > 0) fail(Code::corrupt, "'{}' goes on after the data its header announces", path_);
  }

  const std::string& path() const { return path_; }

 private:
  struct Close {
    void operator()(gzFile_s* file) const { ::gzclose(file); }
  };

  std::string reason() const {
    int number = 0;
    const std::string text = ::gzerror(file_.get(), &number);
    return number == Z_ERRNO ? std::strerror(errno) : text.substr(text.rfind(": ") + 2);
  }
  std::string end_reason() const {
    int number = 0;
    ::gzerror(file_.get(), &number);
    return number == Z_BUF_ERROR ? " (the gzip data ends early)" : "";
  }

  std::string path_;
  std::unique_ptr<gzFile_s, Close> file_;
};

ByteReader open_plain_or_gz(const fs::path& folder, const std::string& name) {
  for (const char* ending : {"", ".gz"}) {
    if (fs::exists(folder / (name + ending))) return ByteReader(folder / (name + ending));
  }
  fail(Code::io, "'{}' does not exist, nor with .gz; data must be the folder of an IDX data set",
       (folder / name).string());
}

constexpr std::uint32_t kImagesMagic = 0x803;
constexpr std::uint32_t kLabelsMagic = 0x801;

// The header's numbers: magic, then one size per dimension, all big-endian.
template <int kNumbers>
std::array<std::uint32_t, kNumbers> read_header(ByteReader& reader, std::uint32_t magic) {
  std::vector<std::uint8_t> bytes;
  reader.read(bytes, 4 * kNumbers, "IDX header");
  std::array<std::uint32_t, kNumbers> numbers{};
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    numbers[i / 4] = numbers[i / 4] << 8 | bytes[i];
  }
  if (numbers[0] != magic) {
    const char* kind = numbers[0] == kImagesMagic   ? "IDX images"
                       : numbers[0] == kLabelsMagic ? "IDX labels"
                                                    : "no IDX file of bytes";
    fail(Code::corrupt,
         "'{}' is of another kind: expected magic number {:#010x} (IDX {}), found "
         "{:#010x} ({})",
         reader.path(), magic, magic == kImagesMagic ? "images" : "labels", numbers[0], kind);
  }
  return numbers;
}

void check_labels(const std::string& path, const std::vector<std::uint8_t>& labels, int classes) {
  const auto wrong =
      std::find_if(labels.begin(), labels.end(), [&](int label) { return label >= classes; });
  if (wrong != labels.end()) {
    fail(Code::corrupt, "'{}': expected labels from 0 to {}, found {} at sample {}", path,
         classes - 1, *wrong, wrong - labels.begin());
  }
}

Images load_idx_part(const fs::path& folder, const std::string& prefix, int classes) {
  Images images;
  ByteReader pixels = open_plain_or_gz(folder, prefix + "-images-idx3-ubyte");
  const auto [magic, count, height, width] = read_header<4>(pixels, kImagesMagic);
  if (count > kSamplesMax || height < 1 || width < 1 || height > kSideMax || width > kSideMax) {
    fail(Code::corrupt, "'{}': expected images of 1 to {} pixels a side, found {} of {} × {}",
         pixels.path(), kSideMax, count, height, width);
  }
  images.count = count;
  images.channels = 1;
  images.height = static_cast<int>(height);
  images.width = static_cast<int>(width);
  pixels.read(images.pixels, images.count * images.height * images.width, "pixels");
  pixels.require_end();

  ByteReader labels = open_plain_or_gz(folder, prefix + "-labels-idx1-ubyte");
  const auto [labels_magic, label_count] = read_header<2>(labels, kLabelsMagic);
  if (label_count != count) {
    fail(Code::corrupt, "'{}': expected {} labels, one for each image of '{}', found {}",
         labels.path(), count, pixels.path(), label_count);
  }
  labels.read(images.labels, label_count, "labels");
  labels.require_end();
  check_labels(labels.path(), images.labels, classes);
  return images;
}

// Exact: from the counts of the 256 pixel values.
void measure(ImageDataset& dataset) {
  const Images& images = dataset.train;
  const std::int64_t plane = std::int64_t{1} * images.height * images.width;
  for (int c = 0; c < images.channels; ++c) {
    std::array<std::int64_t, 256> seen{};
    for (std::int64_t i = 0; i < images.count; ++i) {
      const std::uint8_t* pixel = images.pixels.data() + (i * images.channels + c) * plane;
      for (std::int64_t p = 0; p < plane; ++p) ++seen[pixel[p]];
    }
    double sum = 0;
    double squares = 0;
    for (int value = 0; value < 256; ++value) {
      const double times = static_cast<double>(seen[static_cast<std::size_t>(value)]);
      sum += times * value / 255;
      squares += times * value * value / (255.0 * 255.0);
    }
    const double total = std::max<double>(1, static_cast<double>(images.count * plane));
    const double mean = sum / total;
    const double deviation = std::sqrt(std::max(0.0, squares / total - mean * mean));
    dataset.mean.push_back(static_cast<float>(mean));
    dataset.deviation.push_back(deviation > 1e-6 ? static_cast<float>(deviation) : 1.0f);
  }
}

constexpr int kCifarSide = 32;
constexpr int kCifarClasses = 10;
constexpr std::int64_t kCifarPixels = 3 * kCifarSide * kCifarSide;

void append_cifar(const fs::path& path, Images& images) {
  const std::string content = read_file(path, std::size_t{1} << 32);
  constexpr std::size_t kRecord = 1 + kCifarPixels;
  if (content.empty() || content.size() % kRecord != 0) {
    fail(Code::corrupt,
         "'{}' is truncated or of another kind: expected records of {} bytes, found {} bytes, {} "
         "too many",
         path.string(), kRecord, content.size(), content.size() % kRecord);
  }
  const std::int64_t records = static_cast<std::int64_t>(content.size() / kRecord);
  std::vector<std::uint8_t> labels;
  for (std::size_t at = 0; at < content.size(); at += kRecord) {
    labels.push_back(static_cast<std::uint8_t>(content[at]));
    const auto* pixels = reinterpret_cast<const std::uint8_t*>(content.data() + at + 1);
    images.pixels.insert(images.pixels.end(), pixels, pixels + kCifarPixels);
  }
  check_labels(path.string(), labels, kCifarClasses);
  images.labels.insert(images.labels.end(), labels.begin(), labels.end());
  images.count += records;
}

}  // namespace

ImageDataset load_idx(const fs::path& folder, int classes) {
  ImageDataset dataset;
  dataset.classes = classes;
  dataset.train = load_idx_part(folder, "train", classes);
  dataset.test = load_idx_part(folder, "t10k", classes);
  const Images& train = dataset.train;
  const Images& test = dataset.test;
  if (train.height != test.height || train.width != test.width) {
    fail(Code::corrupt, "'{}': training images are {} × {}, but test images are {} × {}",
         folder.string(), train.height, train.width, test.height, test.width);
  }
  measure(dataset);
  return dataset;
}

ImageDataset load_cifar10(const fs::path& folder) {
  ImageDataset dataset;
  dataset.classes = kCifarClasses;
  for (Images* images : {&dataset.train, &dataset.test}) {
    images->channels = 3;
    images->height = images->width = kCifarSide;
  }
  for (int i = 1; i <= 5; ++i) {
    append_cifar(folder / ("data_batch_" + std::to_string(i) + ".bin"), dataset.train);
  }
  append_cifar(folder / "test_batch.bin", dataset.test);
  measure(dataset);
  return dataset;
}

TextDataset load_text(const fs::path& file, double validation_fraction) {
  const std::string content = read_file(file, std::size_t{1} << 40);
  const auto held_back =
      static_cast<std::size_t>(static_cast<double>(content.size()) * validation_fraction);
  const auto split = content.end() - static_cast<std::ptrdiff_t>(held_back);
  return {{content.begin(), split}, {split, content.end()}};
}

}  // namespace lockstep::train

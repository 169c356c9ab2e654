#include "lockstep/train/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <functional>

#include "lockstep/base/error.h"
#include "lockstep/env/files.h"
#include "lockstep/env/temporary_folder.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::string big_endian(std::uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16),
          static_cast<char>(value >> 8), static_cast<char>(value)};
}

std::string images(std::uint32_t count, std::uint32_t side = 2) {
  std::string content = big_endian(0x803) + big_endian(count) + big_endian(side) + big_endian(side);
  for (std::uint32_t i = 0; i < count * side * side; ++i) content += static_cast<char>(i % 256);
  return content;
}

std::string labels(std::uint32_t count) {
  std::string content = big_endian(0x801) + big_endian(count);
  for (std::uint32_t i = 0; i < count; ++i) content += static_cast<char>(i % 10);
  return content;
}

class Datasets : public testing::Test {
 protected:
  Datasets() {
    put("train-images-idx3-ubyte", images(12));
    put("train-labels-idx1-ubyte", labels(12));
    put("t10k-images-idx3-ubyte", images(3));
    put("t10k-labels-idx1-ubyte", labels(3));
  }

  void put(const std::string& name, const std::string& content) {
    write_file_atomically(folder_ / name, content);
  }
  std::string gzipped(const std::string& content) {
    const std::string path = (folder_ / "scratch").string();
    gzFile file = ::gzopen(path.c_str(), "wb");
    ::gzwrite(file, content.data(), static_cast<unsigned>(content.size()));
    ::gzclose(file);
    return read_file(path, 1 << 20);
  }
  std::string error_of(const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& error) {
      EXPECT_TRUE(error.code() == Code::corrupt || error.code() == Code::io);
      return error.what();
    }
    return "no error";
  }
  std::string idx_error() {
    return error_of([&] { load_idx(folder_, 10); });
  }

  const TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
};

TEST_F(Datasets, ReadsIdxPlainAndGzipped) {
  const ImageDataset plain = load_idx(folder_, 10);
  EXPECT_EQ(plain.train.count, 12);
  EXPECT_EQ(plain.test.count, 3);
  EXPECT_EQ(plain.train.pixels[47], 47);
  EXPECT_EQ(plain.train.labels[11], 1);
  EXPECT_NEAR(plain.mean[0], 23.5 / 255, 1e-6);
  EXPECT_NEAR(plain.deviation[0], 13.8534 / 255, 1e-5);
  for (const char* name : {"train-images-idx3-ubyte", "t10k-labels-idx1-ubyte"}) {
    put(std::string(name) + ".gz", gzipped(read_file(folder_ / name, 1 << 20)));
    fs::remove(folder_ / name);
  }
  const ImageDataset packed = load_idx(folder_, 10);
  EXPECT_EQ(packed.train.pixels, plain.train.pixels);
  EXPECT_EQ(packed.test.labels, plain.test.labels);
}

TEST_F(Datasets, AMissingFileIsNamed) {
  fs::remove(folder_ / "t10k-labels-idx1-ubyte");
  EXPECT_THAT(idx_error(), AllOf(HasSubstr("t10k-labels-idx1-ubyte'"), HasSubstr("not exist")));
  EXPECT_THAT(error_of([&] { load_cifar10(folder_); }), HasSubstr("data_batch_1.bin"));
  EXPECT_THAT(error_of([&] { load_text(folder_ / "absent", 0); }), HasSubstr("absent"));
}

TEST_F(Datasets, ATruncatedFileIsNamedWithBothSizes) {
  const std::string whole = images(12);
  put("train-images-idx3-ubyte", whole.substr(0, whole.size() - 1));
  EXPECT_THAT(idx_error(), AllOf(HasSubstr("train-images-idx3-ubyte' is truncated"),
                                 HasSubstr("expected 48 bytes of pixels, found 47")));
  put("train-images-idx3-ubyte", whole.substr(0, 7));
  EXPECT_THAT(idx_error(), HasSubstr("expected 16 bytes of IDX header, found 7"));
  put("train-images-idx3-ubyte", "");
  EXPECT_THAT(idx_error(), HasSubstr("found 0"));
}

TEST_F(Datasets, ATruncatedOrDamagedGzipFileIsNamed) {
  fs::remove(folder_ / "train-images-idx3-ubyte");
  std::string content = images(500, 8);
  for (std::size_t i = 16; i < content.size(); ++i) content[i] = static_cast<char>(i * i % 251);
  const std::string packed = gzipped(content);
  put("train-images-idx3-ubyte.gz", packed.substr(0, packed.size() / 2));
  EXPECT_THAT(idx_error(), AllOf(HasSubstr("train-images-idx3-ubyte.gz' is truncated"),
                                 HasSubstr("the gzip data ends early")));
  // The checksum at the end of the gzip data finds a byte that is wrong but decodes.
  std::string damaged = packed;
  damaged[damaged.size() - 6] ^= 1;
  put("train-images-idx3-ubyte.gz", damaged);
  EXPECT_THAT(idx_error(), HasSubstr("train-images-idx3-ubyte.gz' is damaged"));
}

TEST_F(Datasets, AFileOfAnotherKindIsNamed) {
  put("train-images-idx3-ubyte", labels(12) + std::string(100, 'x'));
  EXPECT_THAT(idx_error(), AllOf(HasSubstr("0x00000803 (IDX images)"),
                                 HasSubstr("found 0x00000801 (IDX labels)")));
  put("train-images-idx3-ubyte", "<html>404 not found: this is no data set</html>");
  EXPECT_THAT(idx_error(), HasSubstr("found 0x3c68746d (no IDX file of bytes)"));
}

TEST_F(Datasets, AHeaderThatAnnouncesTooMuchIsRefusedWithoutTheMemory) {
  std::string content = images(12);
  content.replace(4, 4, "\x7f\xff\xff\xff", 4);
  put("train-images-idx3-ubyte", content);
  EXPECT_THAT(idx_error(), HasSubstr("is truncated: expected 8589934588 bytes"));
  content.replace(8, 4, "\xff\xff\xff\xff", 4);
  put("train-images-idx3-ubyte", content);
  EXPECT_THAT(idx_error(), HasSubstr("4294967295"));
  put("train-images-idx3-ubyte", images(12) + "x");
  EXPECT_THAT(idx_error(), HasSubstr("goes on after"));
}

TEST_F(Datasets, FilesThatDoNotBelongTogetherAreNamed) {
  put("train-labels-idx1-ubyte", labels(11));
  EXPECT_THAT(idx_error(), AllOf(HasSubstr("expected 12 labels"), HasSubstr("found 11")));
  put("train-labels-idx1-ubyte", labels(12));
  put("t10k-images-idx3-ubyte", images(3, 4));
  EXPECT_THAT(idx_error(), HasSubstr("test images are 4 × 4"));
}

TEST_F(Datasets, ALabelOutOfRangeIsNamed) {
  EXPECT_THAT(error_of([&] { load_idx(folder_, 9); }),
              AllOf(HasSubstr("train-labels-idx1-ubyte'"), HasSubstr("from 0 to 8"),
                    HasSubstr("found 9 at sample 9")));
}

TEST_F(Datasets, ReadsCifar10) {
  for (int i = 1; i <= 6; ++i) {
    std::string record(1 + 3072, static_cast<char>(10 * i));
    record[0] = static_cast<char>(i);
    put(i < 6 ? "data_batch_" + std::to_string(i) + ".bin" : "test_batch.bin", record + record);
  }
  const ImageDataset dataset = load_cifar10(folder_);
  EXPECT_EQ(dataset.train.count, 10);
  EXPECT_EQ(dataset.test.count, 2);
  EXPECT_THAT(dataset.train.labels, ElementsAre(1, 1, 2, 2, 3, 3, 4, 4, 5, 5));
  EXPECT_EQ(dataset.train.pixels[9 * 3072], 50);
  ASSERT_EQ(dataset.mean.size(), 3u);
  EXPECT_NEAR(dataset.mean[2], 30.0 / 255, 1e-6);

  put("data_batch_3.bin", std::string(3072, 'x'));
  EXPECT_THAT(error_of([&] { load_cifar10(folder_); }),
              AllOf(HasSubstr("data_batch_3.bin"), HasSubstr("records of 3073 bytes")));
  put("data_batch_3.bin", std::string(3073, '\x0a'));
  EXPECT_THAT(error_of([&] { load_cifar10(folder_); }), HasSubstr("found 10 at sample 0"));
}

TEST_F(Datasets, SplitsText) {
  put("text", "0123456789");
  const TextDataset text = load_text(folder_ / "text", 0.2);
  EXPECT_EQ(std::string(text.train.begin(), text.train.end()), "01234567");
  EXPECT_EQ(std::string(text.validation.begin(), text.validation.end()), "89");
}

}  // namespace
}  // namespace lockstep::train

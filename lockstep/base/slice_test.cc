#include "lockstep/base/slice.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Slice, PartsCoverTheWholeInOrderAndAreAligned) {
  for (std::int64_t count = 0; count < 200; ++count) {
    for (std::int64_t parts = 1; parts <= 17; ++parts) {
      for (const std::int64_t align : {1, 3, 16}) {
        const Range whole{7, count};
        std::int64_t next = whole.begin;
        for (std::int64_t i = 0; i < parts; ++i) {
          const Range part = slice_of(whole, parts, i, align);
          EXPECT_EQ(part.begin, next);
          EXPECT_GE(part.count, 0);
          if (part.count > 0) {
            EXPECT_EQ((part.begin - whole.begin) % align, 0);
          }
          EXPECT_LE(part.count, (count / align / parts + 1) * align);
          next = part.end();
        }
        EXPECT_EQ(next, whole.end());
      }
    }
  }
}

TEST(Slice, ChunksCoverTheWhole) {
  for (std::int64_t count = 0; count < 50; ++count) {
    for (std::int64_t chunk = 1; chunk < 20; ++chunk) {
      std::int64_t next = 5;
      for (std::int64_t i = 0; i < chunks_in(count, chunk); ++i) {
        const Range part = chunk_of({5, count}, chunk, i);
        EXPECT_EQ(part.begin, next);
        EXPECT_GT(part.count, 0);
        EXPECT_LE(part.count, chunk);
        next = part.end();
      }
      EXPECT_EQ(next, 5 + count);
    }
  }
}

}  // namespace
}  // namespace lockstep

#include "lockstep/base/text.h"

#include <gtest/gtest.h>

#include <vector>

namespace lockstep {
namespace {

TEST(ParseInteger, TakesOnlyPlainDecimalNumbersInRange) {
  EXPECT_EQ(parse_integer("0", 0, 9), 0);
  EXPECT_EQ(parse_integer("-3", -5, 5), -3);
  EXPECT_EQ(parse_integer("65535", 1, 65535), 65535);
  for (const char* bad : {"", " 1", "1 ", "01", "+1", "abc", "1a", "-0", "65536", "0x1", "1.0",
                          "99999999999999999999"}) {
    EXPECT_FALSE(parse_integer(bad, -70000, 65535).has_value()) << '\'' << bad << '\'';
  }
}

TEST(Nearest, FindsTypingErrorsAndNothingElse) {
  const std::vector<std::string> known = {"momentum", "weight_decay", "model", "mlp"};
  EXPECT_EQ(nearest("momentun", known), "momentum");
  EXPECT_EQ(nearest("modle", known), "model");
  EXPECT_EQ(nearest("mpl", known), "mlp");
  EXPECT_FALSE(nearest("throughput", known).has_value());
}

TEST(HumanBytes, ScalesByThousands) {
  EXPECT_EQ(human_bytes(999), "999 B");
  EXPECT_EQ(human_bytes(1500), "1.5 kB");
  EXPECT_EQ(human_bytes(4.2e6), "4.2 MB");
}

TEST(RankList, JoinsNeighbours) {
  EXPECT_EQ(rank_list({4}), "rank 4");
  EXPECT_EQ(rank_list({0, 1}), "ranks 0, 1");
  EXPECT_EQ(rank_list({0, 2, 3, 4, 5, 9}), "ranks 0, 2–5, 9");
}

}  // namespace
}  // namespace lockstep

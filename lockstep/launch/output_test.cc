#include "lockstep/launch/output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using ::testing::ElementsAre;

// What would be on a screen that shows both streams; empties the queue.
std::string shown(OutputMixer& mixer) {
  std::string all;
  for (const auto& piece : mixer.queue()) all += piece.bytes;
  mixer.queue().clear();
  return all;
}

TEST(OutputMixer, OneRankPassesBytesAsTheyCome) {
  OutputMixer mixer(1, PrefixMode::automatic, {});
  mixer.add(0, Stream::out, "50 %");
  EXPECT_EQ(shown(mixer), "50 %");
  mixer.add(0, Stream::out, "\r100 %");
  mixer.finish(0);
  EXPECT_EQ(shown(mixer), "\r100 %");
}

TEST(OutputMixer, OneRankGetsPrefixesWhenAskedFor) {
  OutputMixer mixer(1, PrefixMode::always, {});
  mixer.add(0, Stream::out, "a\nb");
  EXPECT_EQ(shown(mixer), "[rank 0] a\n");
  mixer.finish(0);
  EXPECT_EQ(shown(mixer), "[rank 0] b\n");
}

TEST(OutputMixer, LinesOfSeveralRanksStayWholeAndOnTheirStream) {
  OutputMixer mixer(3, PrefixMode::always, {});
  mixer.add(1, Stream::out, "one ");
  mixer.add(2, Stream::err, "two\nhal");
  mixer.add(1, Stream::out, "line\n\n");
  mixer.add(2, Stream::out, "other stream\n");
  ASSERT_EQ(mixer.queue().size(), 2U);
  EXPECT_EQ(mixer.queue()[0].stream, Stream::err);
  EXPECT_EQ(mixer.queue()[0].bytes, "[rank 2] two\n");
  EXPECT_EQ(mixer.queue()[1].stream, Stream::out);
  EXPECT_EQ(mixer.queue()[1].bytes, "[rank 1] one line\n[rank 1] \n[rank 2] other stream\n");
  mixer.queue().clear();
  mixer.finish(2);
  EXPECT_EQ(shown(mixer), "[rank 2] hal\n");
}

TEST(OutputMixer, RankZeroAloneHasNoPrefixUntilAnotherPrints) {
  OutputMixer mixer(2, PrefixMode::automatic, {});
  mixer.add(0, Stream::out, "first\nsec");
  EXPECT_EQ(shown(mixer), "first\n");
  mixer.add(1, Stream::err, "hello\n");
  mixer.add(0, Stream::out, "ond\n");
  EXPECT_EQ(shown(mixer), "[rank 1] hello\n[rank 0] second\n");
}

TEST(OutputMixer, NeverMeansWholeLinesWithoutPrefix) {
  OutputMixer mixer(2, PrefixMode::never, {});
  mixer.add(0, Stream::out, "a");
  mixer.add(1, Stream::out, "b\n");
  mixer.add(0, Stream::out, "a\n");
  EXPECT_EQ(shown(mixer), "b\naa\n");
}

TEST(OutputMixer, OnATerminalALiveLineOfRankZeroIsShownAtOnce) {
  OutputMixer mixer(2, PrefixMode::automatic, {true, true});
  mixer.add(0, Stream::out, "\rstep 1");
  EXPECT_EQ(shown(mixer), "\rstep 1");
  mixer.add(1, Stream::err, "warning\n");
  EXPECT_EQ(shown(mixer), "\n[rank 1] warning\n");
  mixer.add(0, Stream::out, "\rstep 2");
  mixer.add(0, Stream::out, "\rstep 3");
  EXPECT_EQ(shown(mixer), "\r\x1b[K[rank 0] step 2\r\x1b[K[rank 0] step 3");
  mixer.add(1, Stream::err, "again\n");
  EXPECT_EQ(shown(mixer), "\r\x1b[K[rank 1] again\n");
  mixer.add(0, Stream::out, "\rdone\n");
  EXPECT_EQ(shown(mixer), "[rank 0] done\n");
}

TEST(OutputMixer, ANoticeEndsALineThatIsOnTheScreen) {
  OutputMixer mixer(1, PrefixMode::automatic, {true, true});
  mixer.add(0, Stream::out, "\rstep 1");
  mixer.notice("lockstep run: SIGINT");
  EXPECT_EQ(shown(mixer), "\rstep 1\nlockstep run: SIGINT\n");
}

TEST(OutputMixer, ALineOfTheLargestLengthIsKeptWhole) {
  OutputMixer mixer(2, PrefixMode::always, {});
  const std::string line(kLineBytesMax, 'x');
  for (std::size_t at = 0; at < line.size(); at += 65536) {
    mixer.add(1, Stream::out, std::string_view(line).substr(at, 65536));
  }
  EXPECT_EQ(mixer.queued_bytes(), 0U);
  mixer.add(1, Stream::out, "\n");
  EXPECT_EQ(shown(mixer), "[rank 1] " + line + "\n");
}

TEST(OutputMixer, ALongerLineIsSplitWithAMarkAndNoCharacterIsTorn) {
  OutputMixer mixer(2, PrefixMode::always, {});
  const std::string ascii(kLineBytesMax - 1, 'x');
  mixer.add(1, Stream::out, ascii + "é and more\n");
  EXPECT_EQ(shown(mixer),
            "[rank 1] " + ascii + std::string(kLineGoesOn) + "\n[rank 1] é and more\n");
  // Bytes that are no UTF-8 at all are cut too.
  mixer.add(1, Stream::out, std::string(kLineBytesMax + 5, '\x80') + "\n");
  EXPECT_EQ(shown(mixer), "[rank 1] " + std::string(kLineBytesMax, '\x80') +
                              std::string(kLineGoesOn) + "\n[rank 1] " + std::string(5, '\x80') +
                              "\n");
}

TEST(LogJoiner, KeepsEveryByteAndNoLineInsideAnother) {
  LogJoiner joiner;
  EXPECT_EQ(joiner.add(Stream::out, "one "), "");
  EXPECT_EQ(joiner.add(Stream::err, "two\nthree\nfo"), "two\nthree\n");
  EXPECT_EQ(joiner.add(Stream::out, "line\r\nlast"), "one line\r\n");
  EXPECT_EQ(joiner.finish(), "lastfo");
  EXPECT_EQ(joiner.finish(), "");
  const std::string endless(kLineBytesMax + 1, 'x');
  EXPECT_EQ(joiner.add(Stream::out, endless), endless);
}

TEST(LineTail, KeepsTheLastLinesOfBothStreams) {
  LineTail tail;
  for (int i = 1; i <= 9; ++i) tail.add(Stream::out, "line " + std::to_string(i) + "\n");
  tail.add(Stream::err, "disk on");
  tail.add(Stream::out, "\n  \n\rold\rnew");
  tail.add(Stream::err, " fire");
  EXPECT_THAT(tail.lines(), ElementsAre("line 7", "line 8", "line 9", "new", "disk on fire"));
}

TEST(LineTail, ShortensLongLines) {
  LineTail tail;
  tail.add(Stream::out, std::string(100'000, 'a') + "\nb\r\n");
  const std::string shortened = std::string(LineTail::kLineShownBytesMax, 'a') + " …";
  EXPECT_THAT(tail.lines(), ElementsAre(shortened, "b"));
}

}  // namespace
}  // namespace lockstep

#include "schedule/text.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/error_codes.h"
#include "base/file.h"
#include "schedule/generators.h"

namespace quintet::schedule {
namespace {

std::string why_not(std::string_view text) {
  try {
    parse(text, "mine.txt");
  } catch (const base::UserError& e) {
    return base::without_code(e.what());
  }
  return "";
}

constexpr std::string_view kHead = "schedule mine\nstages 2\nchunks 1\nmicro_batches 1\nplacement looped\n";
std::string with_head(std::string_view rest) { return std::string(kHead) + std::string(rest); }

TEST(Text, RoundTrip) {
  for (const std::string& name : schedule_names())
    for (const int p : {1, 2, 4}) {
      const Schedule s = make_schedule(name, p, 0, 3 * p);
      EXPECT_EQ(parse(print(s)), s) << name;
    }
  Schedule s = zb_h1(2, 3);
  s.max_in_flight.clear();
  EXPECT_EQ(parse(print(s)), s);
}

TEST(Text, CommentsAndBlanks) {
  const Schedule s = parse(with_head("\n# mine\n  0:  0F0\t0BW0 # both\r\n1: 0F0 0BW0"));
  EXPECT_EQ(s.ranks[0], s.ranks[1]);
  EXPECT_EQ(s.ranks[0].size(), 2u);
  EXPECT_FALSE(s.splits_backward);
}

TEST(Text, ErrorsSayWhere) {
  EXPECT_EQ(why_not(with_head("0: 0F0 0X0\n1: 0F0 0BW0\n")),
            "mine.txt:6:8: expected an action such as 0F3 or 1BW2 (chunk, F, B, W or BW, micro-batch), found "
            "'0X0'");
  EXPECT_EQ(why_not(with_head("0: 0F0 0BW1\n")),
            "mine.txt:6:8: 0BW1: micro-batch out of range; there are 1 micro-batches, numbered from 0");
  EXPECT_EQ(why_not(with_head("0: 1F0\n")),
            "mine.txt:6:4: 1F0: chunk out of range; there are 1 chunks, numbered from 0");
  EXPECT_EQ(why_not(with_head("0: 0F0+0BWx\n")),
            "mine.txt:6:8: expected an action such as 0F3 or 1BW2 (chunk, F, B, W or BW, micro-batch), found "
            "'0BWx'");
  EXPECT_EQ(why_not(with_head("0: 0F\n")), "mine.txt:6:6: expected an integer of at least 0, found ''");
  EXPECT_EQ(why_not(with_head("1: 0F0\n")),
            "mine.txt:6:1: expected rank 0, found rank 1: ranks must be in order");
  EXPECT_EQ(why_not("schedule a\nstages two\n"),
            "mine.txt:2:8: expected an integer of at least 1, found 'two'");
  EXPECT_EQ(why_not("stages 2\nstages 2\n"), "mine.txt:2:1: 'stages' appears twice, first on line 1");
  EXPECT_EQ(why_not("  placement up\n"), "mine.txt:1:13: placement must be 'looped' or 'v', found 'up'");
  EXPECT_EQ(why_not("stages 2 3\n"), "mine.txt:1:1: 'stages' takes one value, found 2");
  EXPECT_NE(why_not("colour red\n").find("mine.txt:1:1: expected schedule, stages"), std::string::npos);
  EXPECT_EQ(why_not(with_head("0: 0F0 0BW0\n")), "mine.txt: 2 stages, but 1 rank lines");
  EXPECT_EQ(why_not("schedule a\n"), "mine.txt: missing line 'stages ...' before the ranks");
  EXPECT_EQ(why_not(with_head("0: 0F0 0BW0\nchunks 2\n")),
            "mine.txt:7:1: 'chunks' must come before the ranks");
  EXPECT_EQ(why_not(with_head("0: 0F99999999999\n")),
            "mine.txt:6:6: expected an integer of at least 0, found '99999999999'");
}

TEST(Text, AUsersFileIsCheckedWhenLoaded) {
  const std::string path = testing::TempDir() + "/user_schedule.txt";
  base::write_file_atomically(path, with_head("0: 0F0 0BW0\n1: 0F0 0BW0\n"));
  EXPECT_EQ(load(path).name, "mine");
  base::write_file_atomically(path, with_head("0: 0F0 0BW0\n1: 0F0\n"));
  EXPECT_THROW(load(path), base::UserError);
}

}  // namespace
}  // namespace quintet::schedule

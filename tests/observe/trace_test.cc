#include "observe/trace.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "base/temp_folder.h"

namespace quintet::observe {
namespace {

RankTrace example(int rank, int64_t start) {
  RankTrace trace(rank);
  const int compute = trace.add_stream("compute"), tp = trace.add_stream("tp \"ring\"");
  trace.add(compute, "linear", Category::Compute, start, 1'500, {{"block", 3}, {"micro_batch", 0}});
  trace.add(tp, "all_gather", Category::Communication, start + 250, 1, {{"bytes", int64_t{1} << 40}});
  trace.add(compute, "norm\n", Category::Compute, start + 1'500, 0);
  return trace;
}

TEST(Trace, RoundTripsToTheNanosecond) {
  const test::TempFolder folder;
  const int64_t base_ns = 1'234'567'890'123'457;  // two weeks of uptime
  const std::vector<RankTrace> ranks = {example(0, base_ns + 7), example(1, base_ns)};
  write_trace(folder / "trace.json", ranks);
  const auto records = read_trace(folder / "trace.json");
  ASSERT_EQ(records.size(), 6u);
  EXPECT_EQ(records[0].rank, 0);
  EXPECT_EQ(records[0].stream, "compute");
  EXPECT_EQ(records[0].name, "linear");
  EXPECT_EQ(records[0].category, Category::Compute);
  EXPECT_EQ(records[0].start_ns, 7);
  EXPECT_EQ(records[0].dur_ns, 1'500);
  EXPECT_EQ(records[0].args, (std::map<std::string, int64_t>{{"block", 3}, {"micro_batch", 0}}));
  EXPECT_EQ(records[1].name, "norm\n");
  EXPECT_EQ(records[2].stream, "tp \"ring\"");
  EXPECT_EQ(records[2].category, Category::Communication);
  EXPECT_EQ(records[2].args.at("bytes"), int64_t{1} << 40);
  EXPECT_EQ(records[2].start_ns, 257);
  EXPECT_EQ(records[5].rank, 1);
  EXPECT_EQ(records[5].start_ns, 250);
}

TEST(Trace, FileHasNamesForRanksAndStreams) {
  const test::TempFolder folder;
  const std::vector<RankTrace> ranks = {example(2, 0)};
  write_trace(folder / "trace.json", ranks);
  const auto json = nlohmann::json::parse(base::read_file(folder / "trace.json"));
  const auto& events = json.at("traceEvents");
  EXPECT_EQ(events.at(0).at("name"), "process_name");
  EXPECT_EQ(events.at(0).at("args").at("name"), "rank 2");
  EXPECT_EQ(events.at(2).at("name"), "thread_name");
  EXPECT_EQ(events.at(2).at("tid"), 1);
}

TEST(Trace, FragmentsOfSeveralProcessesJoin) {
  const test::TempFolder folder;
  const std::vector<std::string> fragments = {example(0, 10).fragment(5), "", example(1, 10).fragment(5)};
  write_trace(folder / "trace.json", fragments);
  const auto records = read_trace(folder / "trace.json");
  ASSERT_EQ(records.size(), 6u);
  EXPECT_EQ(records[0].start_ns, 5);
}

TEST(Trace, TimesBeforeTheOriginAreNegative) {
  const test::TempFolder folder;
  const std::vector<std::string> fragments = {example(0, 1'000).fragment(3'500)};
  write_trace(folder / "trace.json", fragments);
  EXPECT_EQ(read_trace(folder / "trace.json")[0].start_ns, -2'500);
}

TEST(Trace, NothingIsStillValid) {
  const test::TempFolder folder;
  write_trace(folder / "trace.json", std::span<const RankTrace>());
  EXPECT_TRUE(read_trace(folder / "trace.json").empty());
}

TEST(Trace, StreamsRecordFromTheirOwnThreads) {
  RankTrace trace(0);
  const int a = trace.add_stream("a", 1), b = trace.add_stream("b", 1);
  const auto record = [&](int stream) {
    for (int i = 0; i < 5'000; ++i) trace.add(stream, "op", Category::Compute, i, 1);
  };
  std::thread other(record, b);
  record(a);
  other.join();
  EXPECT_EQ(trace.events(), 10'000u);
}

TEST(Trace, MisuseIsCaught) {
  RankTrace trace(0);
  const int stream = trace.add_stream("a");
  EXPECT_THROW(trace.add(stream + 1, "op", Category::Compute, 0, 1), base::InternalError);
  EXPECT_THROW(trace.add(stream, "op", Category::Compute, 0, -1), base::InternalError);
  EXPECT_THROW(
      trace.add(stream, "op", Category::Compute, 0, 1, {{"a"}, {"b"}, {"c"}, {"d"}, {"e"}, {"f"}, {"g"}}),
      base::InternalError);
}

TEST(Trace, ReadingSomethingElseIsAUserError) {
  const test::TempFolder folder;
  base::write_file_atomically(folder / "x", "[1, 2");
  EXPECT_CONTAINS(test::user_error([&] { read_trace(folder / "x"); }), "is not a Chrome trace");
  base::write_file_atomically(folder / "x", "{\"traceEvents\": [{\"ph\": 3}]}");
  EXPECT_CONTAINS(test::user_error([&] { read_trace(folder / "x"); }), "is not a Chrome trace");
}

}  // namespace
}  // namespace quintet::observe

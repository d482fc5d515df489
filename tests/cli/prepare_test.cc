// `quintet prepare` as a user runs it: killed at random moments, and on bad input.
#include <chrono>
#include <cmath>
#include <random>
#include <thread>

#include "chat/tiny_tokenizer.h"
#include "cli/support.h"

namespace quintet {
namespace {

std::string prepared_bytes(const base::Path& folder) {
  std::string out;
  for (const char* name : {"tokens.bin", "tokens.idx", "manifest.json"})
    out += base::read_file(folder / name);
  return out;
}

TEST(PrepareVerb, KilledAtRandomMomentsItEndsInTheSameBytes) {
  const test::TempFolder folder;
  std::mt19937 random(7);
  for (int file = 0; file < 3; ++file) {
    std::string lines;
    for (int i = 0; i < 2500; ++i) {
      std::string text;
      for (int k = 0; k < 60; ++k) text += fmt::format("word{} ", random() % 2000);
      lines +=
          fmt::format("{{\"text\": \"{}\"}}\n", i % 5 == 0 ? "a repeated document of a few words" : text);
    }
    base::write_file_atomically(folder / fmt::format("{}.jsonl", file), lines);
  }
  const auto arguments = [&](const char* out) {
    return std::vector<std::string>{"prepare",
                                    (folder / "0.jsonl").string(),
                                    (folder / "1.jsonl").string(),
                                    (folder / "2.jsonl").string(),
                                    "--tokenizer",
                                    "bytes",
                                    "--out",
                                    (folder / out).string(),
                                    "--shard",
                                    "50000",
                                    "--dedup",
                                    "near",
                                    "--threads",
                                    "1"};
  };
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_EQ(test::Background(arguments("whole")).wait(), 0);
  const auto longest =
      std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begin).count();
  int killed = 0;
  for (int n = 0; n < 12; ++n) {
    test::Background run(arguments("killed"));
    std::this_thread::sleep_for(std::chrono::milliseconds(
        std::uniform_int_distribution<int64_t>(0, std::max<int64_t>(1, longest))(random)));
    if (run.ended()) {
      ASSERT_EQ(run.wait(), 0);
      ASSERT_TRUE(prepared_bytes(folder / "killed") == prepared_bytes(folder / "whole"));
      std::filesystem::remove_all(folder / "killed");
      continue;
    }
    run.send(SIGKILL);
    run.wait();
    ++killed;
  }
  EXPECT_GT(killed, 0);
  ASSERT_EQ(test::Background(arguments("killed")).wait(), 0);
  EXPECT_TRUE(prepared_bytes(folder / "killed") == prepared_bytes(folder / "whole"));
  for (const auto& entry : std::filesystem::directory_iterator(folder / "killed"))
    EXPECT_TRUE(entry.path().filename() == "tokens.bin" || entry.path().filename() == "tokens.idx" ||
                entry.path().filename() == "manifest.json")
        << entry.path() << " is left";
}

TEST(PrepareVerb, ConversationsAreKilledAtRandomMomentsToo) {
  const test::TempFolder folder;
  test::write_tiny_tokenizer(folder / "tok");
  std::mt19937 random(8);
  std::string lines;
  for (int i = 0; i < 3000; ++i) {
    std::string text;
    for (int k = 0; k < 40; ++k) text += fmt::format("word{} ", random() % 2000);
    lines += fmt::format(
        R"({{"messages": [{{"role": "user", "content": "q{}"}}, {{"role": "assistant", "content": "{}"}}]}})",
        i / 2, i % 5 == 0 ? "a repeated answer" : text);
    lines += "\n";
  }
  base::write_file_atomically(folder / "chat.jsonl", lines);
  const auto arguments = [&](const char* out) {
    return std::vector<std::string>{
        "prepare", (folder / "chat.jsonl").string(), "--chat",  "--tokenizer", (folder / "tok").string(),
        "--out",   (folder / out).string(),          "--shard", "50000",       "--dedup",
        "exact"};
  };
  const auto bytes = [&](const char* out) {
    auto manifest = nlohmann::json::parse(base::read_file(folder / out / "manifest.json"));
    manifest.erase("time_of_strftime_now");
    return base::read_file(folder / out / "tokens.bin") + base::read_file(folder / out / "tokens.mask") +
           manifest.dump();
  };
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_EQ(test::Background(arguments("whole")).wait(), 0);
  const auto longest =
      std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begin).count();
  for (int n = 0; n < 6; ++n) {
    test::Background run(arguments("killed"));
    std::this_thread::sleep_for(std::chrono::milliseconds(
        std::uniform_int_distribution<int64_t>(0, std::max<int64_t>(1, longest))(random)));
    if (run.ended()) {
      ASSERT_EQ(run.wait(), 0);
      ASSERT_TRUE(bytes("killed") == bytes("whole"));
      std::filesystem::remove_all(folder / "killed");
      continue;
    }
    run.send(SIGKILL);
    run.wait();
  }
  ASSERT_EQ(test::Background(arguments("killed")).wait(), 0);
  EXPECT_TRUE(bytes("killed") == bytes("whole"));
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "killed"))
    files += entry.path().extension() != ".partial";
  EXPECT_EQ(files, 4);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder / "killed"), {}), 4);
}

TEST(PrepareVerb, FaultsEndWithExitCode2) {
  const test::TempFolder folder;
  base::write_file_atomically(folder / "a.jsonl", "{\"content\": \"x\"}\n");
  base::write_file_atomically(folder / "empty.txt", "");
  const std::string out = " --tokenizer bytes --out " + (folder / "out").string();
  for (const auto& [arguments, what] : std::vector<std::pair<std::string, std::string>>{
           {(folder / "a.jsonl").string() + out, "a.jsonl:1: no field \"text\"; the fields are: content"},
           {(folder / "empty.txt").string() + out, "1 empty"},
           {(folder / "none").string() + out, "no data at"},
           {(folder / "a.jsonl").string() + out + " --template '{x'", "template '{x' is not valid"},
           {(folder / "a.jsonl").string() + out + " --where x", "is not a condition"}}) {
    const test::Outcome outcome = test::quintet("prepare --overwrite " + arguments);
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    EXPECT_CONTAINS(outcome.err, what);
    EXPECT_FALSE(base::file_exists(folder / "out/tokens.bin"));
  }
}

}  // namespace
}  // namespace quintet

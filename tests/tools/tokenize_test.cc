#include "tools/tokenize.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"
#include "base/temp_folder.h"
#include "tokenizer/files.h"

namespace quintet::tools {
namespace {

std::string lines(int count, int damaged_from = -1) {
  std::string text;
  for (int i = 0; i < count; ++i)
    text += damaged_from >= 0 && i >= damaged_from ? "{broken\n"
                                                   : fmt::format("{{\"text\": \"line {} of it\"}}\n", i);
  return text;
}

TEST(Tokenize, OneFileIsCountedAndTrainedOnByAllThreads) {
  const test::TempFolder folder;
  base::write_file_atomically(folder / "a.jsonl", lines(3000));
  base::write_file_atomically(folder / "b.txt", "three more words");
  const std::vector<std::string> paths = {folder.path().string()};
  const auto bytes = tokenizer::load_tokenizer("bytes");
  const TokenCount one = count_tokens(*bytes, paths, 1), four = count_tokens(*bytes, paths, 4);
  EXPECT_EQ(one.documents, 3001);
  EXPECT_EQ(one.files, 2);
  EXPECT_EQ(one.tokens, one.bytes);
  EXPECT_EQ(four.documents, one.documents);
  EXPECT_EQ(four.files, one.files);
  EXPECT_EQ(four.tokens, one.tokens);
  std::vector<std::string> files;
  for (const int threads : {1, 4}) {
    const base::Path out = folder / fmt::format("t{}.json", threads);
    train_tokenizer({.paths = {(folder / "a.jsonl").string()},
                     .vocab = 300,
                     .pattern = "llama3",
                     .special = {},
                     .out = out,
                     .threads = threads});
    files.push_back(base::read_file(out));
  }
  EXPECT_EQ(files[0], files[1]);
}

TEST(Tokenize, TheFirstDamagedLineIsReportedWhicheverThreadFindsOne) {
  const test::TempFolder folder;
  base::write_file_atomically(folder / "a.jsonl", lines(400, 123));
  const std::vector<std::string> paths = {(folder / "a.jsonl").string()};
  const auto bytes = tokenizer::load_tokenizer("bytes");
  for (int round = 0; round < 20; ++round) {
    try {
      count_tokens(*bytes, paths, 4);
      FAIL() << "a damaged line was accepted";
    } catch (const base::UserError& e) {
      EXPECT_NE(std::string(e.what()).find("a.jsonl:124"), std::string::npos) << e.what();
    }
  }
}

}  // namespace
}  // namespace quintet::tools

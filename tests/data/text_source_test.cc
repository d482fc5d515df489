#include "data/text_source.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/temp_folder.h"
#include "data/token_file.h"

namespace quintet::data {
namespace {

using test::TempFolder;
using test::user_error;

std::vector<std::string> texts(const Corpus& corpus) {
  std::vector<std::string> texts;
  for (int64_t d = 0; d < corpus.documents(); ++d) {
    const auto begin = corpus.offsets()[static_cast<size_t>(d)],
               end = corpus.offsets()[static_cast<size_t>(d) + 1];
    std::vector<int32_t> ids(end - begin);
    corpus.read(static_cast<int64_t>(begin), ids);
    texts.push_back(tokenizer::ByteTokenizer().decode(ids));
  }
  return texts;
}

class TextSource : public testing::Test {
 protected:
  void put(const std::string& name, const std::string& text) {
    base::make_directories((folder / name).parent_path());
    base::write_file_atomically(folder / name, text);
  }
  Corpus load(const std::string& name) { return load_corpus(folder / name, tokenizer); }
  TempFolder folder;
  tokenizer::ByteTokenizer tokenizer;
};

TEST_F(TextSource, FolderIsReadSortedAndOtherFilesAreSkipped) {
  put("in/b.txt", "second");
  put("in/a/z.md", "first");
  put("in/a/image.png", std::string("PNG\0data", 8));
  put("in/.git/config", "hidden");
  put("in/.hidden", "hidden");
  put("in/build-release/x.txt", "built");
  put("in/a/build/x.txt", "built");
  put("in/runs/log.txt", "run");
  put("in/empty.txt", "");
  put("in/tokens.bin", "x");
  put("in/tokens.idx", "x");
  put("in/c.jsonl", "{\"text\": \"third\"}\n\n{\"text\": \"fourth\", \"id\": 4}\r\n");
  EXPECT_EQ(texts(load("in")), (std::vector<std::string>{"first", "second", "third", "fourth"}));
}

TEST_F(TextSource, NamedPathsAreNeverSkipped) {
  put("build/runs/.x", "text");
  EXPECT_EQ(texts(load("build/runs/.x")), std::vector<std::string>{"text"});
  put("build/y.txt", "inside");
  EXPECT_EQ(texts(load("build")), std::vector<std::string>{"inside"});
  put("binary", std::string("a\0b", 3));
  EXPECT_CONTAINS(user_error([&] { load("binary"); }), "is not a text file: it contains NUL bytes");
}

TEST_F(TextSource, SeveralPathsInTheGivenOrder) {
  put("one", "1");
  put("two", "2");
  const std::vector<base::Path> paths = {folder / "two", folder / "one"};
  EXPECT_EQ(texts(read_text(paths, tokenizer)), (std::vector<std::string>{"2", "1"}));
}

TEST_F(TextSource, MissingAndEmpty) {
  EXPECT_CONTAINS(user_error([&] { load("nowhere"); }), "no data at '" + (folder / "nowhere").string() + "'");
  put("empty", "");
  EXPECT_CONTAINS(user_error([&] { load("empty"); }), "0 files; skipped 1 empty file");
  put("in/a", "");
  put("in/b", std::string("\0", 1));
  EXPECT_CONTAINS(user_error([&] { load("in"); }), "0 files; skipped 1 binary file, 1 empty file");
  base::make_directories(folder / "bare");
  EXPECT_CONTAINS(user_error([&] { load("bare"); }), "no text in");
  put("e.jsonl", "{\"text\": \"\"}\n");
  EXPECT_CONTAINS(user_error([&] { load("e.jsonl"); }), "no text in");
}

TEST_F(TextSource, SaysWhatWasReadAndSkipped) {
  put("in/a.txt", "text");
  put("in/b.txt", "more");
  put("in/picture", std::string("\0", 1));
  put("in/build/x.txt", "built");
  put("in/docs/runs/x.txt", "run");
  put("in/.git/x", "hidden");
  put("in/.x", "hidden");
  std::filesystem::create_symlink(folder / "in/a.txt", folder / "in/link.txt");
  std::filesystem::create_symlink("/dev/null", folder / "in/null.txt");
  ASSERT_EQ(::mkfifo((folder / "in/pipe.txt").c_str(), 0600), 0);
  ASSERT_EQ(::mkfifo((folder / "in/.pipe").c_str(), 0600), 0);
  const std::vector<base::Path> paths = {folder / "in", folder / "in/b.txt"};
  Reading reading;
  EXPECT_EQ(texts(read_text(paths, tokenizer, &reading)), (std::vector<std::string>{"text", "more"}));
  EXPECT_EQ(
      reading.text(),
      "2 files; skipped 3 folders (.git, build, docs/runs), 2 files by their names, 2 pipes or devices, "
      "1 binary file, 2 files read already");
}

TEST_F(TextSource, AFileIsReadOnceUnderTheNameThatSaysWhatItHolds) {
  put("hub/blobs/0a", "{\"text\": \"one\"}\n{\"text\": \"two\"}\n");
  put("hub/blobs/0b", "three");
  put("elsewhere/c.txt", "four");
  base::make_directories(folder / "hub/snapshots");
  const auto link = [&](const char* to, const char* name) {
    std::filesystem::create_symlink(to, folder / "hub/snapshots" / name);
  };
  link("../blobs/0a", "a.jsonl");
  link("../blobs/0b", "b.txt");
  link("../../elsewhere/c.txt", "c.txt");
  link("../../elsewhere", "more");
  link("../blobs/gone", "gone.jsonl");
  Reading reading;
  EXPECT_EQ(texts(load_corpus(folder / "hub", tokenizer, &reading)),
            (std::vector<std::string>{"three", "one", "two", "four"}));
  EXPECT_EQ(reading.text(),
            "3 files; skipped 1 link to a folder (snapshots/more), 1 link to nothing, 2 files read already");
  EXPECT_EQ(texts(load_corpus(folder / "hub/snapshots", tokenizer)),
            (std::vector<std::string>{"one", "two", "three", "four"}));
}

TEST_F(TextSource, JsonFilesAreRecordsByTheirContents) {
  put("in/a.json", "{\"text\": \"one\"}\n{\"text\": \"two\"}\n");
  put("in/b.json", "[{\"text\": \"three\"}, {\"text\": \"four\"}]");
  put("in/c.json", "[{\"id\": 1}]");
  put("in/d.json", "{\"id\":\n1}");
  Reading reading;
  EXPECT_EQ(texts(load_corpus(folder / "in", tokenizer, &reading)),
            (std::vector<std::string>{"one", "two", "three", "four", "[{\"id\": 1}]", "{\"id\":\n1}"}));
  EXPECT_EQ(
      reading.text(),
      "4 files; 1 of the files read is a JSON array whose records lack the text's field, read as plain text");
  EXPECT_CONTAINS(user_error([&] { load("in/c.json"); }), "array of objects without the field text");
  put("e.json", "{\"txt\": \"one\"}\n{\"text\": \"two\"}\n");
  EXPECT_CONTAINS(user_error([&] { load("e.json"); }), "e.json:1: no field \"text\"; the fields are: txt");
}

TEST_F(TextSource, SkipIsARuleThatCanBeChanged) {
  put("in/a.txt", "1");
  put("in/b.csv", "2");
  put("in/.c", "3");
  put("in/build/d.txt", "4");
  put("in/runs", "5");  // a file: "runs/" is for folders
  put("in/old/raw/e.txt", "6");
  put("in/old/f.txt", "7");
  const auto read = [&](const Skip& skip) {
    return texts(load_corpus(folder / "in", tokenizer, nullptr, {.skip = skip}));
  };
  using Texts = std::vector<std::string>;
  EXPECT_EQ(read(default_skip()), (Texts{"1", "2", "7", "6", "5"}));
  EXPECT_EQ(read({}), (Texts{"3", "1", "2", "4", "7", "6", "5"}));
  EXPECT_EQ(read({"*.csv", "?.txt"}), (Texts{"3", "5"}));
  EXPECT_EQ(read({"old/*/", "runs", "build/"}), (Texts{"3", "1", "2", "7"}));
  EXPECT_EQ(read({"/old/f.txt", "raw"}), (Texts{"3", "1", "2", "4", "5"}));
  EXPECT_CONTAINS(user_error([&] { read({"*"}); }),
                  "0 files; skipped 2 folders (build, old), 4 files by their names");
}

// Run folders and checkpoints among the data are left out, whatever data.skip says.
TEST_F(TextSource, WhatRunsWriteIsNotRead) {
  put("in/a.txt", "1");
  put("in/out/run.json", "{}");
  put("in/out/recipe.toml", "2");
  put("in/out/metrics.jsonl", "{}");
  put("in/latest", "step-00000010\n");
  put("in/step-00000010/manifest.json", "{}");
  put("in/step-notes/b.txt", "3");
  put("in/old/latest", "step-00000010\n");  // of no checkpoint
  put("in/old/run.json.txt", "4");
  Reading reading;
  EXPECT_EQ(texts(load_corpus(folder / "in", tokenizer, &reading, {.skip = {}})),
            (std::vector<std::string>{"1", "step-00000010\n", "4", "3"}));
  EXPECT_CONTAINS(reading.text(), "skipped 2 folders (out, step-00000010), 1 file by its name");
}

TEST_F(TextSource, JsonlFaultsNameTheLine) {
  put("x.jsonl", "{\"text\":\"a\"}\n\n{\"text\"\n");
  EXPECT_CONTAINS(user_error([&] { load("x.jsonl"); }), "x.jsonl:3: not valid JSON");
  for (const auto& [line, why] : std::vector<std::pair<std::string, std::string>>{
           {"{\"txt\":\"a\"}", "no field \"text\"; the fields are: txt"},
           {"{\"text\": 3}", "the field \"text\" has the type number, but must be a string"},
           {"[1]", "not a JSON object"}}) {
    put("y.jsonl", line);
    EXPECT_CONTAINS(user_error([&] { load("y.jsonl"); }), "y.jsonl:1: " + why);
  }
}

TEST_F(TextSource, TokenFilesAreFoundByAnyName) {
  TokenFileWriter writer(folder / "t", 256);
  writer.add_document(tokenizer.encode("hello"));
  writer.finish();
  for (const char* name : {"t", "t.bin", "t.idx"})
    EXPECT_EQ(texts(load(name)), std::vector<std::string>{"hello"});
}

TEST_F(TextSource, TokenFileMustFitTheTokenizer) {
  TokenFileWriter writer(folder / "t", 1000);
  writer.add_document(std::vector<int32_t>{1, 2});
  writer.finish();
  EXPECT_CONTAINS(user_error([&] { load("t.bin"); }), "vocabulary of 1000, but tokenizer \"bytes\" has 256");
}

}  // namespace
}  // namespace quintet::data

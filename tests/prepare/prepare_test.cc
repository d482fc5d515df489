#include "prepare/prepare.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/checksum.h"
#include "base/temp_folder.h"
#include "data/foreign_file.h"
#include "data/npy_file.h"
#include "prepare/length_counts.h"
#include "tokenizer/tokenizer.h"

namespace quintet::prepare {
namespace {

using test::TempFolder;
using test::user_error;

void put(const base::Path& path, std::string_view bytes) {
  base::make_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
}

std::string all_bytes(const base::Path& folder) {
  return base::read_file(folder / "tokens.bin") + "|" + base::read_file(folder / "tokens.idx") + "|" +
         base::read_file(folder / "manifest.json");
}

// The texts of the documents, which were encoded as bytes.
std::vector<std::string> texts_in(const base::Path& folder) {
  const auto corpus = data::open_foreign_file(folder, 256);
  EXPECT_TRUE(corpus);
  std::vector<int32_t> ids(static_cast<size_t>(corpus->tokens()));
  corpus->read(0, ids);
  std::vector<std::string> out;
  for (int64_t d = 0; d < corpus->documents(); ++d) {
    std::string text;
    for (uint64_t i = corpus->offsets()[static_cast<size_t>(d)];
         i < corpus->offsets()[static_cast<size_t>(d) + 1]; ++i)
      text.push_back(static_cast<char>(ids[i]));
    out.push_back(text);
  }
  return out;
}

class Prepare : public testing::Test {
 protected:
  Prepare() {
    o.inputs = {(folder / "in").string()};
    o.tokenizer = "bytes";
    o.out = folder / "out";
  }
  void lines(const std::string& name, int count, int first = 0) {
    std::string text;
    for (int i = first; i < first + count; ++i) {
      expected.push_back(
          fmt::format("document {} has {} words", i, std::string(static_cast<size_t>(i % 50), 'x')));
      text += fmt::format("{{\"text\": \"{}\", \"n\": {}, \"lang\": \"{}\"}}\n", expected.back(), i,
                          i % 3 == 0 ? "de" : "en");
    }
    put(folder / ("in/" + name), text);
  }
  TempFolder folder;
  Options o;
  std::vector<std::string> expected;
};

TEST_F(Prepare, DocumentsOfAllShardsInOrder) {
  lines("a.jsonl", 300);
  lines("b.jsonl", 200, 300);
  put(folder / "in/c.txt", "a whole text");
  put(folder / "in/d.bin.txt", std::string("binary\0", 7));
  expected.push_back("a whole text");
  o.shard_bytes = 3500;
  const Prepared prepared = prepare(o);
  EXPECT_GT(prepared.shards, 10);
  EXPECT_EQ(texts_in(o.out), expected);
  const auto& m = prepared.manifest;
  EXPECT_EQ(m.at("documents"), 501);
  EXPECT_EQ(m.at("dropped").at("binary_files"), 1);
  EXPECT_EQ(m.at("tokenizer").at("xxh3"), "bytes");
  ASSERT_EQ(m.at("sources").size(), 3u);
  const std::string raw = base::read_file(folder / "in/b.jsonl");
  EXPECT_EQ(m.at("sources").at(1).at("xxh3"),
            fmt::format("{:016x}", base::checksum_of(std::as_bytes(std::span(raw)))));
  EXPECT_FALSE(base::directory_exists(o.out / kWorkFolder));

  // Neither threads nor memory nor the size of shards change the tokens.
  for (const auto& [threads, bytes] : {std::pair{3, 9000}, {1, 3000}, {2, 1 << 20}}) {
    Options other = o;
    other.out = folder / fmt::format("out{}", bytes);
    other.threads = threads;
    other.shard_bytes = bytes;
    prepare(other);
    EXPECT_TRUE(base::read_file(other.out / "tokens.bin") == base::read_file(o.out / "tokens.bin"));
    EXPECT_TRUE(base::read_file(other.out / "tokens.idx") == base::read_file(o.out / "tokens.idx"));
  }
}

// An exception in the progress report ends the work as a kill would: what is finished stays.
TEST_F(Prepare, ContinuesAfterAnInterruptionAtEveryShard) {
  lines("a.jsonl", 100);
  lines("b.jsonl", 50, 90);  // ten documents twice
  o.shard_bytes = 2500;
  o.exact = true;
  o.near = 0.9;
  Options whole = o;
  whole.out = folder / "whole";
  const int64_t shards = prepare(whole).shards;
  ASSERT_GT(shards, 3);
  for (int64_t kill = 1; kill <= shards + 1; ++kill) {
    o.overwrite = true;
    int64_t calls = 0;
    o.progress = [&](prepare::Stage, int64_t, int64_t) {
      if (++calls == kill) throw std::runtime_error("killed");
    };
    EXPECT_THROW(prepare(o), std::runtime_error);
    EXPECT_EQ(base::file_exists(o.out / "manifest.json"), kill > 1)
        << "earlier data stay until the new are whole";
    o.progress = {};
    const Prepared again = prepare(o);
    EXPECT_EQ(again.shards_reused, kill - 1);
    EXPECT_TRUE(all_bytes(o.out) == all_bytes(whole.out)) << kill;
    o.overwrite = false;
    EXPECT_TRUE(prepare(o).was_complete);
  }
}

TEST_F(Prepare, OtherFilesInTheFolderStay) {
  lines("a.jsonl", 10);
  put(o.out / "work/thesis.tex", "mine");
  put(o.out / "film.mkv.partial", "mine");
  prepare(o);
  o.min_tokens = 2;
  o.overwrite = true;
  prepare(o);
  EXPECT_EQ(base::read_file(o.out / "work/thesis.tex"), "mine");
  EXPECT_EQ(base::read_file(o.out / "film.mkv.partial"), "mine");

  o.overwrite = false;
  for (const char* name : {"tokens.bin", "tokens.idx", "tokens.mask"}) {
    o.out = folder / (std::string("foreign-") + name);
    put(o.out / name, "tokens of another tool");
    EXPECT_NE(user_error([&] { prepare(o); }).find("--overwrite"), std::string::npos);
    EXPECT_EQ(base::read_file(o.out / name), "tokens of another tool");
  }
}

// A run that fails after --overwrite must not have cost the earlier data.
TEST_F(Prepare, EarlierDataStayWhenTheirReplacementFails) {
  lines("a.jsonl", 10);
  prepare(o);
  const std::string before = all_bytes(o.out);
  put(folder / "in/b.jsonl", "no json\n");
  o.overwrite = true;
  EXPECT_NE(user_error([&] { prepare(o); }).find("b.jsonl:1"), std::string::npos);
  EXPECT_TRUE(all_bytes(o.out) == before);
}

TEST_F(Prepare, OptionsThatNameFieldsNeedThem) {
  put(folder / "in/a.txt", "a text");
  put(folder / "in/b.md", "another");
  const auto refusal = [&](const std::function<void(Options&)>& change) {
    Options other = o;
    change(other);
    return user_error([&] { prepare(other); });
  };
  for (const std::string& message :
       {refusal([](Options& p) { p.where = {"lang=en"}; }), refusal([](Options& p) { p.field = "body"; }),
        refusal([](Options& p) { p.text_template = "{title}"; })})
    EXPECT_NE(message.find("all 2 input files are plain text, which has none"), std::string::npos) << message;
  lines("c.jsonl", 3);
  o.where = {"lang=en"};
  EXPECT_EQ(prepare(o).files_kept_whole, 2);
}

TEST_F(Prepare, FiltersAndDamageAreCounted) {
  put(folder / "in/a.jsonl",
      "{\"text\": \"kept\", \"lang\": \"en\"}\n"
      "{\"text\": \"other\", \"lang\": \"de\"}\n"
      "no json\n"
      "{\"txt\": \"\", \"lang\": \"en\"}\n"
      "{\"text\": \"\", \"lang\": \"en\"}\n"
      "{\"text\": \"x\", \"lang\": \"en\"}\n"
      "{\"text\": \"much too long\", \"lang\": \"en\"}\n"
      "{\"text\": \"kept\", \"lang\": \"en\"}\n");
  o.where = {"lang=en"};
  o.min_tokens = 2;
  o.max_tokens = 10;
  o.exact = true;
  EXPECT_CONTAINS(user_error([&] { prepare(o); }),
                  "a.jsonl:3: not valid JSON (byte 2: invalid literal). --damaged skip");
  o.overwrite = true;
  o.skip_damaged = true;
  const auto m = prepare(o).manifest;
  EXPECT_EQ(texts_in(o.out), std::vector<std::string>{"kept"});
  EXPECT_EQ(m.at("records"), 8);
  const nlohmann::ordered_json dropped = {
      {"empty", 1},     {"damaged", 2},  {"binary_files", 0},     {"filtered", 1},
      {"too_short", 1}, {"too_long", 1}, {"exact_duplicates", 1}, {"near_duplicates", 0}};
  EXPECT_EQ(m.at("dropped"), dropped);
  ASSERT_EQ(m.at("damage").size(), 2u);
  EXPECT_CONTAINS(m.at("damage").at(1).get<std::string>(),
                  "a.jsonl:4: no field \"text\"; the fields are: lang, txt");
}

TEST_F(Prepare, LengthsAreCounted) {
  std::string text;
  for (const int length : {1, 2, 3, 3, 4, 7, 8, 9, 9, 1000})
    text += fmt::format("{{\"text\": \"{}\"}}\n", std::string(static_cast<size_t>(length), 'x'));
  put(folder / "in/a.jsonl", text);
  const auto lengths = prepare(o).manifest.at("lengths");
  const auto bucket = [](int from, int to, int documents) {
    return nlohmann::ordered_json{{"from", from}, {"to", to}, {"documents", documents}};
  };
  EXPECT_EQ(lengths.at("median"), 4);
  EXPECT_EQ(lengths.at("90%"), 9);
  EXPECT_EQ(lengths.at("99%"), 1000);
  EXPECT_EQ(lengths.at("longest"), 1000);
  EXPECT_EQ(lengths.at("histogram"),
            (nlohmann::ordered_json{bucket(1, 1, 1), bucket(2, 3, 3), bucket(4, 7, 2), bucket(8, 15, 3),
                                    bucket(512, 1023, 1)}));
  const std::string shown = lengths_text(lengths);
  EXPECT_CONTAINS(shown, "median 4, 90 % up to 9, 99 % up to 1,000, longest 1,000 tokens");
  EXPECT_CONTAINS(shown, "2 to           3              3  ########################################\n");
  EXPECT_CONTAINS(shown, "512 to       1,023              1  ##############\n");
}

// In any order of memory, the first of documents that are alike stays.
TEST_F(Prepare, NearDuplicatesAreDropped) {
  const auto words = [](int first, int count) {
    std::string text;
    for (int i = 0; i < count; ++i) text += fmt::format("word{} ", first + i);
    return text;
  };
  std::string text;
  for (const std::string& document : {words(0, 100), words(500, 100), words(0, 99) + "end", words(0, 100),
                                      words(500, 50) + words(900, 50)}) {
    text += "{\"text\": \"" + document + "\"}\n";
    expected.push_back(document);
  }
  put(folder / "in/a.jsonl", text);
  o.exact = true;
  o.near = 0.8;
  const auto m = prepare(o).manifest;
  EXPECT_EQ(m.at("dropped").at("exact_duplicates"), 1);
  EXPECT_EQ(m.at("dropped").at("near_duplicates"), 1);
  EXPECT_EQ(texts_in(o.out), (std::vector<std::string>{expected[0], expected[1], expected[4]}));
}

// A number per document that is kept: what data.curriculum.by sorts by.
TEST_F(Prepare, ColumnsBelongToTheDocuments) {
  put(folder / "in/a.jsonl",
      "{\"text\": \"one\", \"score\": 0.25, \"meta\": {\"n\": 1}}\n"
      "{\"text\": \"\", \"score\": 2, \"meta\": {\"n\": 2}}\n"
      "{\"text\": \"one\", \"score\": 3, \"meta\": {\"n\": 3}}\n"
      "{\"text\": \"two\", \"score\": -4, \"meta\": {\"n\": 4}}\n");
  o.columns = {"score", "meta.n"};
  o.exact = true;
  o.shard_bytes = 80;
  EXPECT_EQ(prepare(o).manifest.at("columns"), (nlohmann::ordered_json{"score", "meta.n"}));
  EXPECT_EQ(texts_in(o.out), (std::vector<std::string>{"one", "two"}));
  EXPECT_EQ(data::read_npy_numbers(o.out / "score.npy"), (std::vector<double>{0.25, -4}));
  EXPECT_EQ(data::read_npy_numbers(o.out / "meta.n.npy"), (std::vector<double>{1, 4}));
  // They do not outlast their documents.
  o.columns = {"score"};
  o.overwrite = true;
  prepare(o);
  EXPECT_FALSE(base::file_exists(o.out / "meta.n.npy"));

  const auto refusal = [&](std::vector<std::string> columns) {
    o.columns = std::move(columns);
    return user_error([&] { prepare(o); });
  };
  EXPECT_CONTAINS(refusal({"text"}), "a.jsonl:1: no number in the field \"text\"");
  EXPECT_CONTAINS(refusal({"rank"}), "a.jsonl:1: nothing in the field \"rank\"");
  EXPECT_CONTAINS(refusal({"../score"}), "--column '../score'");
  EXPECT_CONTAINS(refusal({"score", "score"}), "different fields");
  put(folder / "in/b.txt", "plain");
  EXPECT_CONTAINS(refusal({"score"}), "plain text has no fields");
}

TEST_F(Prepare, TemplateAndEnd) {
  put(folder / "in/a.jsonl", "{\"title\": \"T\", \"body\": \"B\"}\n");
  o.text_template = "{title}\\n{body}";
  o.end = "!";
  prepare(o);
  EXPECT_EQ(texts_in(o.out), std::vector<std::string>{"T\nB!"});
}

TEST_F(Prepare, FaultsAreReportedBeforeAnythingIsWritten) {
  const auto fails = [&](const Options& options, const std::string& what) {
    EXPECT_CONTAINS(user_error([&] { prepare(options); }), what);
    EXPECT_FALSE(base::file_exists(options.out / "tokens.bin"));
  };
  put(folder / "in/a.txt", "");
  fails(o, "no document is left of 1 record in 1 file: 1 empty");
  o.overwrite = true;
  Options bad = o;
  bad.inputs = {(folder / "none").string()};
  fails(bad, "no data at");
  bad = o;
  bad.end = "<|endoftext|>";
  fails(bad, "the tokenizer has no token '<|endoftext|>'");
  bad = o;
  bad.text_template = "{a";
  fails(bad, "is not valid at character 1");
  bad = o;
  bad.where = {"lang"};
  fails(bad, "is not a condition");
  bad = o;
  bad.near = 3;
  fails(bad, "between 0.1 and 1");
  put(folder / "in/b.jsonl", "{\"content\": \"x\"}");
  fails(o, "b.jsonl:1: no field \"text\"; the fields are: content");
  bad = o;
  bad.out = folder / "in/a.txt";
  EXPECT_CONTAINS(user_error([&] { prepare(bad); }), "is a file; expected a folder");
}

TEST_F(Prepare, AFolderKeepsWhatItHas) {
  lines("a.jsonl", 5);
  prepare(o);
  const std::string before = all_bytes(o.out);
  o.end = "!";
  EXPECT_CONTAINS(user_error([&] { prepare(o); }), "other inputs or with other options; --overwrite");
  EXPECT_EQ(all_bytes(o.out), before);
  o.overwrite = true;
  prepare(o);
  EXPECT_NE(all_bytes(o.out), before);
  o.overwrite = false;
  put(folder / "in/more.txt", "more");
  EXPECT_CONTAINS(user_error([&] { prepare(o); }), "--overwrite");
}

TEST_F(Prepare, TheOutputIsNotReadAsInput) {
  lines("a.jsonl", 5);
  o.out = folder / "in/out";
  prepare(o);
  EXPECT_TRUE(prepare(o).was_complete);
}

}  // namespace
}  // namespace quintet::prepare

#include <gtest/gtest.h>

#include <fstream>
#include <random>

#include "base/checksum.h"
#include "base/temp_folder.h"
#include "support/compressed.h"
#include "support/folders.h"
#include "text/byte_stream.h"
#include "text/document.h"

namespace quintet::text {
namespace {

using test::gzipped;
using test::TempFolder;
using test::user_error;
using test::zstd;

void put(const base::Path& path, std::string_view bytes) { std::ofstream(path, std::ios::binary) << bytes; }

// Text that does not compress to nothing, longer than the buffers.
std::string long_text() {
  std::mt19937 random(1);
  std::string text;
  while (text.size() < 3'000'000) text += std::to_string(random()) + (random() % 8 == 0 ? "\n" : " ");
  return text;
}

std::string read_all(const base::Path& path, size_t piece, std::optional<uint64_t>* sum = nullptr) {
  auto stream = open_bytes(path);
  std::string out, buffer(piece, '\0');
  while (const size_t n = stream->read(buffer)) out.append(buffer, 0, n);
  if (sum != nullptr) *sum = stream->checksum();
  EXPECT_EQ(stream->consumed(), base::size_of_file(path));
  return out;
}

TEST(ByteStream, EveryCompressionGivesTheContents) {
  const TempFolder folder;
  const std::string text = long_text();
  put(folder / "a.txt", text);
  put(folder / "a.gz", gzipped(text));
  put(folder / "two.gz", gzipped(text.substr(0, 70'000)) + gzipped(text.substr(70'000)));
  put(folder / "a.zst", zstd(text));
  put(folder / "two.zst", zstd(text.substr(0, 70'000)) + zstd(text.substr(70'000)));
  for (const char* name : {"a.txt", "a.gz", "two.gz", "a.zst", "two.zst"})
    for (const size_t piece : {7777ul, size_t{1} << 20, size_t{1} << 23}) {
      std::optional<uint64_t> sum;
      EXPECT_TRUE(read_all(folder / name, piece, &sum) == text) << name;
      const std::string raw = base::read_file(folder / name);
      EXPECT_EQ(sum, base::checksum_of(std::as_bytes(std::span(raw)))) << name;
      auto stream = open_bytes(folder / name);
      stream->skip(1'234'567);
      std::string rest(text.size(), '\0');
      rest.resize(stream->read(rest));
      EXPECT_TRUE(rest == text.substr(1'234'567)) << name;
    }
}

TEST(ByteStream, DamageIsReportedAndNeverSilent) {
  const TempFolder folder;
  const std::string text = long_text();
  for (const bool gz : {true, false}) {
    const std::string whole = gz ? gzipped(text) : zstd(text), name = gz ? "a.gz" : "a.zst";
    for (const size_t size : {size_t{0}, size_t{1}, size_t{9}, whole.size() / 2, whole.size() - 1}) {
      put(folder / name, whole.substr(0, size));
      EXPECT_CONTAINS(user_error([&] { read_all(folder / name, 4096); }), size < 9 ? name : "truncated")
          << size;
    }
    std::string flipped = whole;
    flipped[0] ^= 1;
    put(folder / name, flipped);
    EXPECT_CONTAINS(user_error([&] { read_all(folder / name, 4096); }),
                    gz ? "not valid gzip" : "not valid zstd");
  }
}

std::vector<Record> records(RecordReader& reader) {
  std::vector<Record> out;
  for (Record record; reader.next(record);) out.push_back(record);
  return out;
}

TEST(RecordReader, ContinuesAtEveryPosition) {
  const TempFolder folder;
  std::string lines;
  for (int i = 0; i < 40; ++i)
    lines += (i % 7 == 3 ? "  \n" : "") + fmt::format("{{\"text\": \"line {}\"}}\n", i);
  put(folder / "a.jsonl", lines + "{\"text\": \"no line break\"}");
  put(folder / "b.txt", "whole\nfile");
  put(folder / "c.jsonl.gz", gzipped(lines));
  put(folder / "d.jsonl.zst", zstd(lines));
  put(folder / "e.txt.gz", gzipped("compressed text"));
  put(folder / "f.txt", "");
  const std::vector<base::Path> files = base::list_files(folder.path());
  RecordReader reader(files, {});
  std::vector<Record> all;
  std::vector<Position> before;
  for (Record record;;) {
    before.push_back(reader.position());
    if (!reader.next(record)) break;
    all.push_back(record);
  }
  ASSERT_EQ(all.size(), 41u + 1 + 40 + 40 + 1 + 1);
  EXPECT_EQ(all[3].number, 5) << "blank lines count";
  EXPECT_EQ(all[41].bytes, "whole\nfile");
  EXPECT_EQ(all[122].bytes, "compressed text");
  for (const FinishedFile& file : reader.take_finished()) {
    const std::string raw = base::read_file(files[static_cast<size_t>(file.file)]);
    EXPECT_EQ(file.checksum, base::checksum_of(std::as_bytes(std::span(raw))));
  }
  for (size_t i = 0; i < before.size(); ++i) {
    RecordReader again(files, {}, before[i]);
    const auto rest = records(again);
    ASSERT_EQ(rest.size(), all.size() - i);
    for (size_t k = 0; k < rest.size(); ++k) {
      EXPECT_EQ(rest[k].bytes, all[i + k].bytes);
      EXPECT_EQ(rest[k].number, all[i + k].number);
      EXPECT_EQ(rest[k].file, all[i + k].file);
    }
  }
}

TEST(RecordReader, ATruncatedFileIsOneDamagedRecordAndTheNextFileFollows) {
  const TempFolder folder;
  std::string lines;
  std::mt19937 random(2);
  for (int i = 0; i < 100'000; ++i) lines += fmt::format("{{\"text\": \"{}\"}}\n", random());
  const std::string whole = gzipped(lines);
  put(folder / "a.jsonl.gz", whole.substr(0, whole.size() / 2));
  put(folder / "b.txt", "good");
  RecordReader reader({folder / "a.jsonl.gz", folder / "b.txt"}, {});
  const auto all = records(reader);
  ASSERT_GT(all.size(), 1000u);
  EXPECT_EQ(all.back().bytes, "good");
  // What comes before the damage does not depend on where reading begins.
  RecordReader half({folder / "a.jsonl.gz", folder / "b.txt"}, {});
  Record record;
  for (size_t i = 0; i < all.size() / 2; ++i) half.next(record);
  RecordReader again({folder / "a.jsonl.gz", folder / "b.txt"}, {}, half.position());
  EXPECT_EQ(records(again).size(), all.size() - all.size() / 2);
  const Record& damaged = all[all.size() - 2];
  EXPECT_CONTAINS(damaged.damage, "a.jsonl.gz' is truncated");
  EXPECT_EQ(document_of(Record(damaged), {}).outcome, Outcome::Damaged);
}

// ---- .json files

FileKind kind_of_json(const std::string& contents, const std::vector<std::string>& columns = {"text"}) {
  const TempFolder folder;
  put(folder / "x.json", contents);
  put(folder / "x.json.gz", gzipped(contents));
  const FileKind kind = kind_of(folder / "x.json", columns);
  EXPECT_EQ(kind_of(folder / "x.json.gz", columns), kind) << contents;
  return kind;
}

TEST(JsonFile, IsWhatItsContentsAre) {
  using enum FileKind;
  const std::string object = R"({"text": "a } ] \" b", "n": [1, {"x": 2}]})";
  EXPECT_EQ(kind_of_json(object + "\n" + object + "\n"), Lines);
  EXPECT_EQ(kind_of_json("\xEF\xBB\xBF\n" + object + "\r\n\r\n" + object), Lines);
  EXPECT_EQ(kind_of_json("{\"other\": 1}\n{\"other\": 2}\n"), Lines) << "records, whose field is missing";
  EXPECT_EQ(kind_of_json("[" + object + ", " + object + "]"), Objects);
  EXPECT_EQ(kind_of_json(" [\n  " + object + "\n]\n"), Objects);
  EXPECT_EQ(kind_of_json("{\n \"text\": \"a\"\n}\n{\n \"text\": \"b\"\n}"), Objects) << "over several lines";
  EXPECT_EQ(kind_of_json(object), Objects);
  EXPECT_EQ(kind_of_json("[{\"id\": 1}]"), Text) << "a file of a source tree";
  EXPECT_EQ(kind_of_json("{\"version\": 3}"), Text);
  EXPECT_EQ(kind_of_json("[{\"id\": 1}]", {}), Objects) << "conversations say themselves what they are";
  for (const char* other :
       {"", "  ", "[]", "[1, 2]", "[[{}]]", "3", "\"text\"", "{\"text\": \"a", "{} x", "[{} {}"})
    EXPECT_EQ(kind_of_json(other), Text) << other;
}

TEST(JsonFile, ContinuesAtEveryObject) {
  const TempFolder folder;
  std::vector<std::string> objects;
  std::mt19937 random(3);
  for (int i = 0; i < 300; ++i)
    objects.push_back(fmt::format("{{\"text\": \"{}\",\n \"deep\": [{{\"[\": \"\\\"]}}\"}}]}}",
                                  std::string(random() % 20'000, 'a')));
  std::string array = "[", stream;
  for (size_t i = 0; i < objects.size(); ++i) {
    array += (i > 0 ? i % 2 ? "," : " \n, " : "") + objects[i];
    stream += objects[i] + (i % 3 ? "\n" : " ");
  }
  put(folder / "a.json", array + "\n]\n");
  put(folder / "b.json.gz", gzipped(stream));
  put(folder / "c.txt", "text");
  const std::vector<base::Path> files = base::list_files(folder.path());
  RecordReader reader(files, {"text"});
  std::vector<Position> before;
  std::vector<Record> all;
  for (Record record;;) {
    before.push_back(reader.position());
    if (!reader.next(record)) break;
    all.push_back(record);
  }
  ASSERT_EQ(all.size(), 601u);
  for (const FinishedFile& file : reader.take_finished()) EXPECT_TRUE(file.checksum) << file.file;
  for (size_t i = 0; i < 600; ++i) {
    EXPECT_EQ(all[i].bytes, objects[i % 300]);
    EXPECT_EQ(all[i].number, static_cast<int64_t>(i % 300) + 1);
  }
  for (size_t i = 0; i < before.size(); i += 37) {
    RecordReader again(files, {"text"}, before[i]);
    const auto rest = records(again);
    ASSERT_EQ(rest.size(), all.size() - i);
    for (size_t k = 0; k < rest.size(); ++k) EXPECT_EQ(rest[k].bytes, all[i + k].bytes);
  }
}

TEST(JsonFile, DamageNamesTheObject) {
  const TempFolder folder;
  const std::string one = "[{\"text\": \"a\"}, {\"text\": \"b\"}";
  for (const auto& [rest, what] : std::vector<std::pair<std::string, std::string>>{
           {"", "the file ends after object 2, within the array"},
           {", ", "the file ends after object 2, within the array"},
           {", {\"text\": ", "the file ends within object 3"},
           {" {}]", "no comma follows object 2"},
           {",, {}]", "no value follows the comma after object 2"},
           {"] {}", "text follows the end of the array"}}) {
    put(folder / "x.json", one + rest);
    RecordReader reader({folder / "x.json"}, {"text"});
    const auto all = records(reader);
    ASSERT_EQ(all.size(), 3u) << rest;
    EXPECT_CONTAINS(all[2].damage, what);
  }
  put(folder / "x.json", "[{\"text\": \"a\"}, 7, {\"text\": x}, {\"text\": \"b\"}]");
  RecordReader reader({folder / "x.json"}, {"text"});
  std::string outcomes;
  for (Record record; reader.next(record);) outcomes += document_of(std::move(record), {}).text + "|";
  EXPECT_EQ(outcomes, "a|not a JSON object|not valid JSON (byte 10: invalid literal)|b|");
  put(folder / "y.json", "[{\"id\": 1, \"body\": \"b\"}]");
  EXPECT_CONTAINS(user_error([&] { require_fields(folder / "y.json", {"text"}); }),
                  "is an array of objects without the field text; the first has: id, body");
  require_fields(folder / "y.json", {"text", "body"});
  put(folder / "y.json", "[\"one\", \"two\"]");
  EXPECT_CONTAINS(user_error([&] { require_fields(folder / "y.json", {"text"}); }),
                  "is an array whose first element is no object but \"one\"");
  EXPECT_EQ(kind_of(folder / "y.json", {"text"}), FileKind::Text)
      << "below a folder it is a file like any other";
  put(folder / "z.json", "[{\"text\": \"a\", \"score\": NaN}, {\"text\": \"b\"}]");  // as Python writes it
  require_fields(folder / "z.json", {"text"});
  EXPECT_EQ(kind_of(folder / "z.json", {"text"}), FileKind::Objects);
}

// What is wrong after the first record makes a file damaged, not a text.
TEST(JsonFile, DamageAfterTheFirstRecordIsNamed) {
  const TempFolder folder;
  for (const auto& [text, good, damage] : std::vector<std::tuple<std::string, size_t, std::string>>{
           {"[{\"text\": \"a\"}{\"text\": \"b\"}]", 1, "no comma follows object 1"},
           {"[{\"text\": \"a\"} x", 1, "no comma follows object 1"},
           {"{\"text\": \"a\"} x\n{\"text\": \"b\"}\n", 2, "not valid JSON"},
           {"{\"text\": \"a\"},\n{\"text\": \"b\"},\n", 1, "no value"}}) {
    put(folder / "x.json", text);
    ASSERT_EQ(kind_of(folder / "x.json", {"text"}), FileKind::Objects) << text;
    EXPECT_EQ(kind_of(folder / "x.json", {"body"}), FileKind::Text) << text;
    RecordReader reader({folder / "x.json"}, {"text"});
    size_t documents = 0;
    std::string found;
    for (Record record; reader.next(record);) {
      const Document document = document_of(std::move(record), {});
      document.outcome == Outcome::Document ? void(++documents) : void(found += document.text);
    }
    EXPECT_EQ(documents, good) << text;
    EXPECT_CONTAINS(found, damage);
  }
}

std::string render(std::string_view spelled, const std::string& line, Outcome expected = Outcome::Document) {
  DocumentFormat format;
  format.text = Template(spelled);
  const Document document = document_of({.kind = FileKind::Lines, .bytes = line}, format);
  EXPECT_EQ(document.outcome, expected);
  return document.text;
}

TEST(Template, PutsFieldsIntoText) {
  EXPECT_EQ(render("{title}\\n{body}", R"({"title": "T", "body": "B\u00e9"})"), "T\nB\xC3\xA9");
  EXPECT_EQ(render("{{{a}}}\\t\\\\ {a}", R"({"a": "x"})"), "{x}\t\\ x");
  EXPECT_EQ(render("{meta.id} {a.b}", R"({"meta": {"id": 7}, "a.b": true})"), "7 true");
  EXPECT_EQ(render("a \xC3\xA9 {x}", R"({"x": ""})"), "a \xC3\xA9 ");
  EXPECT_EQ(render("{x}", R"({"y": 1, "z": 2})", Outcome::Damaged), "no field \"x\"; the fields are: y, z");
  EXPECT_EQ(render("{x}", R"({"x": [1]})", Outcome::Damaged),
            "the field \"x\" has the type array, but must be a string, a number or true or false");
  EXPECT_EQ(render("{x}", R"([])", Outcome::Damaged), "not a JSON object");
  EXPECT_EQ(render("{x}", R"({"x)", Outcome::Damaged),
            "not valid JSON (byte 4: invalid string: missing closing quote)");
}

TEST(Template, FaultsShowThePlace) {
  for (const auto& [spelled, what] :
       std::vector<std::pair<std::string, std::string>>{{"{title", "character 1: '{' has no '}'"},
                                                        {"a}", "character 2: '}' has no '{'"},
                                                        {"{}", "character 1: there is no name"},
                                                        {"{a{b}}", "character 1: '{' has no '}'"},
                                                        {"{a}\\q", "character 4: only \\n"},
                                                        {"plain", "names no field"},
                                                        {"", "names no field"}})
    EXPECT_CONTAINS(user_error([&] { Template t(spelled); }), what);
}

TEST(Condition, ComparesNumbersAndStrings) {
  const auto kept = [](std::string_view where, const std::string& line) {
    DocumentFormat format;
    format.where.emplace_back(where);
    return document_of({.kind = FileKind::Lines, .bytes = line}, format).outcome == Outcome::Document;
  };
  const std::string line = R"({"text": "t", "lang": "en", "score": 0.5, "meta": {"ok": true}})";
  for (const char* yes : {"lang=en", "lang != de", "score>=0.5", "score<=0.5", "score<0.6", "score>0.1",
                          "meta.ok=true", "lang>=a"})
    EXPECT_TRUE(kept(yes, line)) << yes;
  for (const char* no : {"lang=de", "score>0.5", "score!=0.5", "none=1", "meta.ok=false", "lang=1", "meta=1"})
    EXPECT_FALSE(kept(no, line)) << no;
  for (const char* bad : {"lang", "=en", "lang=", "!x", "", "a ! b"})
    EXPECT_CONTAINS(user_error([&] { Condition c(bad); }), "is not a condition");
}

TEST(Parquet, IsAskedForByNameWhenMissing) {
  const TempFolder folder;
  put(folder / "a.parquet", "PAR1");
  RecordReader reader({folder / "a.parquet"}, {});
  Record record;
  if (!reads_parquet()) {
    EXPECT_CONTAINS(user_error([&] { reader.next(record); }), "tools/setup.sh --parquet");
  } else {
    ASSERT_TRUE(reader.next(record));
    EXPECT_CONTAINS(record.damage, "cannot be read as Parquet");
  }
}

// tests/golden/make_parquet.py writes the file.
TEST(Parquet, RowsAreObjectsOfTheirColumns) {
  if (!reads_parquet()) GTEST_SKIP() << "this build has no Arrow; `tools/setup.sh --parquet` installs it";
  const base::Path file = base::Path(test::source_dir()) / "tests/golden/rows.parquet";
  DocumentFormat format;
  format.text = Template("{title}|{body}|{year}|{score}|{meta.id}");
  format.where.emplace_back("year>=2001");
  RecordReader reader({file}, format.columns());
  std::vector<Position> before;
  std::vector<Record> all;
  for (Record record;;) {
    before.push_back(reader.position());
    if (!reader.next(record)) break;
    all.push_back(record);
  }
  ASSERT_EQ(all.size(), 700u);
  EXPECT_EQ(document_of(Record(all[0]), format).outcome, Outcome::Filtered);
  EXPECT_EQ(document_of(Record(all[699]), format).text,
            "the field \"body\" has the type null, but must be a string");
  EXPECT_EQ(document_of(Record(all[698]), format).text, "title 3|body \xC3\xA9 698|2698|87.25|698");
  EXPECT_EQ(all[698].number, 699);
  RecordReader whole({file}, {});
  EXPECT_CONTAINS(records(whole)[5].bytes, R"("meta":{"id":5,"tags":["t5","x"]})");
  for (const size_t i : {1u, 299u, 300u, 301u, 555u, 600u, 699u, 700u}) {
    RecordReader again({file}, format.columns(), before[i]);
    const auto rest = records(again);
    ASSERT_EQ(rest.size(), 700 - i);
    if (!rest.empty()) {
      EXPECT_EQ(rest[0].bytes, all[i].bytes);
    }
  }
  RecordReader none({file}, {"txt"});
  Record record;
  EXPECT_CONTAINS(user_error([&] { none.next(record); }), "columns are: title, body, score, year, meta");
}

}  // namespace
}  // namespace quintet::text

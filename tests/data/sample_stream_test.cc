#include "data/sample_stream.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "base/temp_folder.h"

namespace quintet::data {
namespace {

using test::TempFolder;
using test::user_error;

class Stream : public testing::Test {
 protected:
  // Files f0.jsonl ... with documents of different lengths, which name themselves.
  void write_files(int count) {
    for (int f = 0; f < count; ++f) {
      const base::Path path = folder / fmt::format("f{}.jsonl", f);
      std::ofstream out(path);
      std::string whole;
      for (int d = 0; d < 20 + f; ++d) {
        const std::string text =
            fmt::format("<{}.{}{}>", f, d, std::string(static_cast<size_t>((7 * d + f) % 23), 'x'));
        out << "{\"text\": \"" << text << "\"}\n";
        whole += text;
        documents.push_back(text);
      }
      contents.push_back(whole);
      options.files.push_back(path);
    }
    options.tokenizer = std::make_shared<tokenizer::ByteTokenizer>();
    options.seq_len = 10;
    options.window = 8;
    options.held = 8;
    options.seed = 5;
  }
  // The tokens of the first windows in stored order, as text.
  std::string text_of(const SampleStream& stream, int64_t windows) {
    std::string out;
    for (int64_t w = 0; w < windows; ++w) {
      const auto window = stream.find(w * options.window).window;
      EXPECT_EQ(window->dataset.size(), options.window);
      for (int64_t i = 0; i < window->dataset.size(); ++i)
        for (const int32_t id : window->dataset.get(i).tokens) out.push_back(static_cast<char>(id));
    }
    return out;
  }
  TempFolder folder;
  StreamOptions options;
  std::vector<std::string> contents, documents;
};

TEST_F(Stream, EpochsAreTheFilesInAnOrderOfTheirOwn) {
  write_files(4);
  SampleStream stream(options);
  size_t length = 0;
  for (const std::string& c : contents) length += c.size();
  const std::string text = text_of(stream, static_cast<int64_t>(4 * length / 80));
  std::set<std::string> orders;
  for (size_t epoch = 0; (epoch + 1) * length <= text.size(); ++epoch) {
    std::string rest = text.substr(epoch * length, length), order;
    std::set<size_t> seen;
    while (!rest.empty()) {
      size_t f = 0;
      while (f < contents.size() && !rest.starts_with(contents[f])) ++f;
      ASSERT_LT(f, contents.size()) << "epoch " << epoch;
      ASSERT_TRUE(seen.insert(f).second) << "a file comes once";
      order += static_cast<char>('0' + f);
      rest = rest.substr(contents[f].size());
    }
    EXPECT_EQ(seen.size(), 4u);
    orders.insert(order);
  }
  EXPECT_GT(orders.size(), 1u);
}

TEST_F(Stream, PositionsAreAShuffleOfEachWindow) {
  write_files(2);
  SampleStream stream(options);
  std::set<std::vector<int64_t>> orders;
  for (int64_t w = 0; w < 5; ++w) {
    std::vector<int64_t> order;
    for (int64_t i = 0; i < options.window; ++i)
      order.push_back(stream.find(stream.sample_at(w * options.window + i)).index);
    orders.insert(order);
    std::sort(order.begin(), order.end());
    for (int64_t i = 0; i < options.window; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
  }
  EXPECT_EQ(orders.size(), 5u);
}

Sample sample_at(const SampleStream& stream, int64_t position) {
  const auto place = stream.find(stream.sample_at(position));
  return place.window->dataset.get(place.index);
}

void expect_same(const Sample& a, const Sample& b) {
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_EQ(a.labels, b.labels);
  EXPECT_EQ(a.positions, b.positions);
  EXPECT_EQ(a.documents, b.documents);
}

TEST_F(Stream, ContinuesFromEveryPositionWithAndWithoutACursor) {
  write_files(3);
  options.separate_documents = true;
  SampleStream whole(options);
  constexpr int64_t kPositions = 200;  // several epochs
  std::vector<Sample> expected;
  std::vector<StreamCursor> cursors;
  for (int64_t p = 0; p < kPositions; ++p) {
    expected.push_back(sample_at(whole, p));
    cursors.push_back(parse_cursor(to_text(whole.cursor(p))));
    EXPECT_EQ(cursors.back().window, p / options.window);
  }
  options.threads = 3;
  for (int64_t p = 0; p < kPositions; p += 7) {
    SampleStream again(options), without(options);
    again.add_cursor(cursors[static_cast<size_t>(p)]);
    for (int64_t q = p; q < std::min(kPositions, p + 20); ++q)
      expect_same(sample_at(again, q), expected[static_cast<size_t>(q)]);
    expect_same(sample_at(without, p), expected[static_cast<size_t>(p)]);
  }
  // Back to what is no longer held.
  for (const int64_t p : {0, 190, 50, 49, 199, 3})
    expect_same(sample_at(whole, p), expected[static_cast<size_t>(p)]);
}

TEST_F(Stream, IsOneDatasetAcrossWindows) {
  write_files(1);
  options.separate_documents = true;
  options.end = '!';
  SampleStream stream(options);
  // One file: the order of an epoch is the file's. The reference is a corpus of two epochs in memory.
  std::vector<std::vector<int32_t>> ids;
  for (int epoch = 0; epoch < 2; ++epoch)
    for (const std::string& text : documents) {
      ids.push_back(options.tokenizer->encode(text));
      ids.back().push_back('!');
    }
  const Corpus corpus = Corpus::from_documents("reference", 256, ids);
  const Dataset dataset(corpus, 10, true, 0, (corpus.tokens() - 1) / 10);
  for (int64_t s = 0; s < dataset.size(); ++s) {
    const auto window = stream.find(s / 8 * 8).window;
    expect_same(window->dataset.get(s % 8), dataset.get(s));
    EXPECT_EQ(window->dataset.valid_labels(s % 8), dataset.valid_labels(s));
  }
}

TEST_F(Stream, ValidationDocumentsAreNeverTrainedOn) {
  write_files(4);
  options.validation_fraction = 0.2;
  SampleStream stream(options);
  const Corpus held = stream_validation(options, 1'000'000);
  std::set<std::string> out;
  for (int64_t d = 0; d < held.documents(); ++d) {
    const auto offsets = held.offsets().subspan(static_cast<size_t>(d), 2);
    std::vector<int32_t> ids(offsets[1] - offsets[0]);
    held.read(static_cast<int64_t>(offsets[0]), ids);
    out.insert(options.tokenizer->decode(ids));
  }
  EXPECT_GT(out.size(), 5u);
  EXPECT_LT(out.size(), 40u);
  size_t length = 0;
  for (const std::string& d : documents) length += d.size();
  const std::string text = text_of(stream, static_cast<int64_t>(length / 80 + 1));
  for (const std::string& d : documents) EXPECT_EQ(text.find(d) == std::string::npos, out.contains(d)) << d;
  EXPECT_EQ(stream_validation(options, 30).tokens(), 30);
  options.validation_fraction = 1e-9;
  EXPECT_CONTAINS(user_error([&] { stream_validation(options, 100); }), "holds out 0 tokens");
}

TEST_F(Stream, FaultsReachTheReader) {
  write_files(1);
  const base::Path bad = folder / "bad.jsonl";
  std::ofstream(bad) << "{\"text\": \"a\"}\n{\"txt\": \"b\"}\n";
  options.files = {bad};
  {
    SampleStream stream(options);
    for (int i = 0; i < 2; ++i)
      EXPECT_CONTAINS(user_error([&] { stream.find(0); }),
                      "bad.jsonl:2: no field \"text\"; the fields are: txt");
  }
  std::ofstream(bad, std::ios::trunc) << "\n";
  EXPECT_CONTAINS(user_error([&] { SampleStream(options).find(0); }), "no text in");
  EXPECT_CONTAINS(user_error([&] { parse_cursor("1 2 x"); }), "not the place of a data stream");
}

}  // namespace
}  // namespace quintet::data

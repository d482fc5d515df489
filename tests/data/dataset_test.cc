#include "data/dataset.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

#include "base/philox.h"
#include "base/temp_folder.h"

namespace quintet::data {
namespace {

using test::user_error;
using Row = std::vector<int32_t>;

// Documents of the given lengths; tokens are numbered 0, 1, 2, ... through the whole stream.
Corpus counting(const std::vector<int>& lengths) {
  std::vector<Row> documents;
  int32_t next = 0;
  for (const int length : lengths) {
    Row& ids = documents.emplace_back(length);
    std::iota(ids.begin(), ids.end(), next);
    next += length;
  }
  return Corpus::from_documents("counting", 1'000'000, documents);
}

TEST(Dataset, LabelsAreTheNextTokens) {
  const auto [train, validation] = make_splits(counting({4, 3, 4}), {.seq_len = 5});
  EXPECT_FALSE(validation.has_value());
  ASSERT_EQ(train.size(), 2);
  const Sample sample = train.get(1);
  EXPECT_EQ(sample.tokens, (Row{5, 6, 7, 8, 9}));
  EXPECT_EQ(sample.labels, (Row{6, 7, 8, 9, 10}));
  EXPECT_EQ(sample.positions, (Row{0, 1, 2, 3, 4}));
  EXPECT_EQ(sample.documents, (Row{0, 0, 0, 0, 0}));
  EXPECT_EQ(train.valid_labels(1), 5);
}

TEST(Dataset, SeparateDocuments) {
  const auto [train, validation] =
      make_splits(counting({4, 1, 3, 3, 2}), {.seq_len = 6, .separate_documents = true});
  ASSERT_EQ(train.size(), 2);
  const Sample first = train.get(0);  // documents 0-3, 4, 5-7
  EXPECT_EQ(first.tokens, (Row{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(first.labels, (Row{1, 2, 3, -1, -1, 6}));
  EXPECT_EQ(first.positions, (Row{0, 1, 2, 3, 0, 0}));
  EXPECT_EQ(first.documents, (Row{0, 0, 0, 0, 1, 2}));
  const Sample second = train.get(1);  // documents 5-7 from its middle, 8-10, 11-12
  EXPECT_EQ(second.labels, (Row{7, -1, 9, 10, -1, 12}));
  EXPECT_EQ(second.positions, (Row{0, 1, 0, 1, 2, 0}));
  EXPECT_EQ(second.documents, (Row{0, 0, 1, 1, 1, 2}));
}

TEST(Dataset, LabelAcrossTheEndOfASampleIsIgnoredToo) {
  const auto [train, validation] = make_splits(counting({3, 4}), {.seq_len = 3, .separate_documents = true});
  EXPECT_EQ(train.get(0).labels, (Row{1, 2, -1}));
  EXPECT_EQ(train.get(0).documents, (Row{0, 0, 0}));
  EXPECT_EQ(train.get(1).labels, (Row{4, 5, 6}));
  EXPECT_EQ(train.valid_labels(0), 2);
}

// Tokens that a mask leaves out are never labels, whatever else a sample does; counts agree without reading
// tokens. The reference is the definition, spelled out per token.
TEST(Dataset, UntrainedTokensAreNeverLabels) {
  CorpusBuilder builder("masked", 1'000'000);
  std::vector<uint8_t> flags;
  std::vector<bool> starts;
  for (uint64_t d = 0; d < 120; ++d) {
    Row ids(1 + base::philox(4, d)[0] % 9);
    std::iota(ids.begin(), ids.end(), static_cast<int32_t>(flags.size()));
    std::vector<uint8_t> trained(ids.size());
    for (size_t i = 0; i < ids.size(); ++i) trained[i] = base::philox(5, d, i)[0] % 3 != 0;
    // Documents without flags, first and in between, are trained as a whole.
    if (d < 3 || d % 7 == 0) trained.clear();
    builder.add_document(ids, trained);
    if (trained.empty()) trained.assign(ids.size(), 1);
    flags.insert(flags.end(), trained.begin(), trained.end());
    for (size_t i = 0; i < ids.size(); ++i) starts.push_back(i == 0);
  }
  const Corpus corpus = builder.finish();
  ASSERT_EQ(corpus.trained().size(), flags.size());
  for (const bool separate : {false, true})
    for (const double fraction : {0.0, 0.3}) {
      const Splits splits = make_splits(
          corpus, {.seq_len = 7, .separate_documents = separate, .validation_fraction = fraction});
      for (const Dataset* set : {&splits.train, splits.validation ? &*splits.validation : nullptr}) {
        if (set == nullptr) continue;
        for (int64_t i = 0; i < set->size(); ++i) {
          const Sample sample = set->get(i);
          int64_t valid = 0;
          for (size_t at = 0; at < 7; ++at) {
            const bool has = sample.labels[at] != kIgnored;
            valid += has;
            EXPECT_TRUE(!has || flags[static_cast<size_t>(sample.labels[at])] == 1);
            EXPECT_EQ(set->has_label(i, static_cast<int64_t>(at)), has) << i << " " << at;
            // Token t is followed by t + 1 unless a split cut the stream there.
            const auto next = static_cast<size_t>(sample.tokens[at]) + 1;
            const bool contiguous = at + 1 < 7 ? sample.tokens[at + 1] == static_cast<int32_t>(next)
                                               : sample.labels[at] == static_cast<int32_t>(next);
            EXPECT_TRUE(!contiguous || has == (flags[next] == 1 && !(separate && starts[next])))
                << i << " " << at;
          }
          EXPECT_EQ(set->valid_labels(i), valid);
        }
      }
    }
}

TEST(Corpus, FlagsChangeTheFingerprint) {
  const auto with = [](std::vector<uint8_t> trained) {
    CorpusBuilder builder("a", 10);
    builder.add_document(Row{1, 2, 3}, trained);
    return builder.finish();
  };
  EXPECT_NE(with({1, 0, 1}).fingerprint(), with({1, 1, 0}).fingerprint());
  EXPECT_NE(with({}).fingerprint(), with({1, 1, 1}).fingerprint());
  EXPECT_CONTAINS(user_error([&] { with({1, 0}); }), "3 tokens has 2 trained flags");
  EXPECT_CONTAINS(user_error([&] { with({1, 0, 2}); }), "a trained flag is 2");
}

TEST(Dataset, CountsAgreeWithLabels) {
  std::vector<int> lengths;
  for (uint64_t i = 0; i < 200; ++i) lengths.push_back(1 + static_cast<int>(base::philox(1, i)[0] % 9));
  for (const bool separate : {false, true}) {
    const auto [train, validation] =
        make_splits(counting(lengths), {.seq_len = 7, .separate_documents = separate});
    for (int64_t i = 0; i < train.size(); ++i) {
      const Sample sample = train.get(i);
      int64_t valid = 0;
      for (size_t at = 0; at < 7; ++at) {
        valid += sample.labels[at] != kIgnored;
        EXPECT_EQ(train.has_label(i, static_cast<int64_t>(at)), sample.labels[at] != kIgnored);
      }
      EXPECT_EQ(train.valid_labels(i), valid);
      int64_t pairs = 0;
      for (size_t at = 0; at < 7; ++at)
        for (size_t seen = 0; seen <= at; ++seen) pairs += sample.documents[at] == sample.documents[seen];
      EXPECT_EQ(train.visible_pairs(i), pairs);
    }
  }
}

TEST(Dataset, UnrequestedRowsMayBeNull) {
  const auto [train, validation] = make_splits(counting({20}), {.seq_len = 4});
  Row labels(4);
  train.fill(2, {.labels = labels});
  EXPECT_EQ(labels, (Row{9, 10, 11, 12}));
  Row wrong(3);
  EXPECT_THROW(train.fill(0, {.tokens = wrong}), base::InternalError);
  EXPECT_THROW(train.get(train.size()), base::InternalError);
}

TEST(Splits, ShareNoTokenAndLoseLittle) {
  for (int tokens = 10; tokens < 120; ++tokens)
    for (const double fraction : {0.01, 0.1, 0.5, 0.99}) {
      const auto [train, validation] =
          make_splits(counting({tokens}), {.seq_len = 4, .validation_fraction = fraction});
      ASSERT_TRUE(validation.has_value());
      std::set<int32_t> seen, both;
      for (int64_t i = 0; i < train.size(); ++i) {
        const Sample sample = train.get(i);
        seen.insert(sample.tokens.begin(), sample.tokens.end());
        seen.insert(sample.labels.begin(), sample.labels.end());
      }
      for (int64_t i = 0; i < validation->size(); ++i) {
        const Sample sample = validation->get(i);
        for (const auto& row : {sample.tokens, sample.labels})
          for (const int32_t id : row) EXPECT_FALSE(seen.contains(id));
      }
      EXPECT_GE(validation->size(), 1);
      EXPECT_EQ(train.size() + validation->size(), (tokens - 2) / 4);
    }
}

TEST(Splits, FractionIsOfSamples) {
  const auto [train, validation] = make_splits(counting({402}), {.seq_len = 4, .validation_fraction = 0.1});
  EXPECT_EQ(validation->size(), 10);
  EXPECT_EQ(train.size(), 90);
}

// The bytes of all tokens of a split.
std::set<int32_t> tokens_in(const Dataset& dataset) {
  std::set<int32_t> tokens;
  for (int64_t i = 0; i < dataset.size(); ++i)
    for (const int32_t id : dataset.get(i).tokens) tokens.insert(id);
  return tokens;
}

// Documents of one kind at the end of the stream do not become the validation data.
TEST(Splits, AreDrawnOverDocuments) {
  std::vector<int> lengths(300, 40);
  lengths.push_back(8000);  // 40 % of the tokens, in one document
  const auto [train, validation] =
      make_splits(counting(lengths), {.seq_len = 16, .separate_documents = true, .validation_fraction = 0.1});
  EXPECT_EQ(validation->size(), 125);
  int64_t of_long = 0, all = 0;
  for (const int32_t id : tokens_in(*validation)) of_long += id >= 12000, ++all;
  EXPECT_GT(of_long, all / 8);
  EXPECT_LT(of_long, 7 * all / 8);
}

// Neither the order of documents nor the presence of others moves a document to the other split, except those
// that fill up the last tokens.
TEST(Splits, FollowTheContentsOfDocuments) {
  std::vector<Row> documents;
  for (int32_t d = 0; d < 200; ++d) documents.emplace_back(20, d);
  const auto validation_of = [](const std::vector<Row>& list) {
    return tokens_in(
        *make_splits(Corpus::from_documents("test", 1000, list), {.seq_len = 4, .validation_fraction = 0.1})
             .validation);
  };
  const std::set<int32_t> drawn = validation_of(documents);
  EXPECT_NEAR(static_cast<double>(drawn.size()), 20, 1);
  std::reverse(documents.begin(), documents.end());
  EXPECT_EQ(validation_of(documents), drawn);
}

// Where a piece is taken out of a document, the rest does not predict across the gap.
TEST(Splits, LabelsDoNotCrossAGap) {
  const auto [train, validation] =
      make_splits(counting({2000}), {.seq_len = 8, .separate_documents = true, .validation_fraction = 0.2});
  for (const Dataset* split : {&train, &*validation})
    for (int64_t i = 0; i < split->size(); ++i) {
      const Sample sample = split->get(i);
      int64_t valid = 0;
      for (size_t at = 0; at < sample.labels.size(); ++at) {
        EXPECT_EQ(split->has_label(i, static_cast<int64_t>(at)), sample.labels[at] != kIgnored);
        if (sample.labels[at] == kIgnored) continue;
        EXPECT_EQ(sample.labels[at], sample.tokens[at] + 1);
        ++valid;
      }
      EXPECT_EQ(split->valid_labels(i), valid);
    }
}

TEST(Splits, KnowWhetherThereIsAnythingToLearn) {
  const auto single =
      make_splits(counting(std::vector<int>(50, 1)), {.seq_len = 4, .separate_documents = true});
  EXPECT_FALSE(single.train.has_labels());
  EXPECT_TRUE(make_splits(counting(std::vector<int>(50, 1)), {.seq_len = 4}).train.has_labels());
  EXPECT_TRUE(
      make_splits(counting({1, 1, 1, 1, 2}), {.seq_len = 5, .separate_documents = true}).train.has_labels());
}

TEST(Splits, TooLittleDataSaysTheNumbers) {
  const Corpus corpus = counting({1000});
  EXPECT_EQ(make_splits(corpus, {.seq_len = 999}).train.size(), 1);
  const auto message = user_error([&] { make_splits(corpus, {.seq_len = 1000}); });
  EXPECT_CONTAINS(message, "seq_len 1,000 needs 1,001 tokens");
  EXPECT_CONTAINS(message, "has 1,000: use seq_len 999 or less");
  EXPECT_CONTAINS(user_error([] { make_splits(counting({1}), {.seq_len = 1}); }), "use more data");
  const auto split = user_error([&] { make_splits(corpus, {.seq_len = 500, .validation_fraction = 0.1}); });
  EXPECT_CONTAINS(split, "1,002 tokens at seq_len 500");
  EXPECT_CONTAINS(split, "use seq_len 499 or less");
  EXPECT_EQ(make_splits(corpus, {.seq_len = 499, .validation_fraction = 0.1}).validation->size(), 1);
}

TEST(Splits, BadOptions) {
  const Corpus corpus = counting({10});
  EXPECT_CONTAINS(user_error([&] { make_splits(corpus, {.seq_len = 0}); }), "seq_len is 0");
  EXPECT_CONTAINS(user_error([&] { make_splits(corpus, {.seq_len = -4}); }), "seq_len is -4");
  for (const double fraction : {-0.1, 1.0, std::numeric_limits<double>::quiet_NaN()})
    EXPECT_CONTAINS(user_error([&] { make_splits(corpus, {.seq_len = 2, .validation_fraction = fraction}); }),
                    "validation fraction is");
}

}  // namespace
}  // namespace quintet::data

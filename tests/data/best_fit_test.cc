#include "data/best_fit.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "base/philox.h"
#include "base/temp_folder.h"
#include "data/balance.h"
#include "data/batch.h"

namespace quintet::data {
namespace {

using config::LongDocuments;
using Row = std::vector<int32_t>;

// Documents of the given lengths; token t is 1 + its place in the corpus, so that 0 is only padding.
Corpus counting_from_one(const std::vector<int64_t>& lengths) {
  std::vector<Row> documents;
  int32_t next = 1;
  for (const int64_t length : lengths) {
    Row& ids = documents.emplace_back(static_cast<size_t>(length));
    std::iota(ids.begin(), ids.end(), next);
    next += static_cast<int32_t>(length);
  }
  return Corpus::from_documents("documents", 1 << 20, documents);
}

std::vector<int64_t> random_lengths(uint64_t key, size_t count, int64_t most) {
  std::vector<int64_t> lengths(count);
  for (size_t i = 0; i < count; ++i)
    lengths[i] = 1 + static_cast<int64_t>(base::philox(key, i)[0]) % most *
                         static_cast<int64_t>(base::philox(key, i)[1] % 100) / 100;
  return lengths;
}

Dataset packed(const Corpus& corpus, int64_t seq_len, LongDocuments policy = LongDocuments::Split) {
  return Dataset(corpus, seq_len, {{0, corpus.tokens()}}, policy);
}

// Labels of the corpus that samples have, by label token, with the number of tokens of its document before it
// that the sample holds.
std::map<int32_t, int32_t> labels_of(const Dataset& dataset) {
  std::map<int32_t, int32_t> seen;
  for (int64_t i = 0; i < dataset.size(); ++i) {
    const Sample s = dataset.get(i);
    int64_t valid = 0;
    for (size_t at = 0; at < s.labels.size(); ++at) {
      EXPECT_EQ(dataset.has_label(i, static_cast<int64_t>(at)), s.labels[at] != kIgnored);
      if (s.labels[at] == kIgnored) continue;
      ++valid;
      EXPECT_EQ(s.labels[at], s.tokens[at] + 1);
      EXPECT_TRUE(seen.emplace(s.labels[at], s.positions[at] + 1).second) << "a label twice";
      if (at > 0 && s.documents[at] == s.documents[at - 1]) {
        EXPECT_EQ(s.tokens[at], s.tokens[at - 1] + 1);
        EXPECT_EQ(s.positions[at], s.positions[at - 1] + 1);
      } else {
        EXPECT_EQ(s.positions[at], 0);
        EXPECT_EQ(s.documents[at], at == 0 ? 0 : s.documents[at - 1] + 1);
      }
    }
    EXPECT_EQ(dataset.valid_labels(i), valid);
  }
  return seen;
}

TEST(BestFit, DocumentsStayWholeAndEveryLabelOccursOnce) {
  for (uint64_t trial = 0; trial < 20; ++trial) {
    const int64_t seq_len = 1 + static_cast<int64_t>(base::philox(3, trial)[0] % 200);
    const Corpus corpus = counting_from_one(random_lengths(trial, 300, seq_len + 2));
    const Dataset dataset = packed(corpus, seq_len);
    const auto seen = labels_of(dataset);
    int64_t expected = 0;
    for (int64_t d = 0; d < corpus.documents(); ++d) {
      const auto begin = static_cast<int32_t>(corpus.offsets()[static_cast<size_t>(d)]),
                 end = static_cast<int32_t>(corpus.offsets()[static_cast<size_t>(d) + 1]);
      for (int32_t t = begin + 1; t < end; ++t, ++expected) {
        // Each label is predicted from its whole document.
        ASSERT_TRUE(seen.contains(t + 1));
        EXPECT_EQ(seen.at(t + 1), t - begin);
      }
    }
    EXPECT_EQ(static_cast<int64_t>(seen.size()), expected);
    EXPECT_EQ(dataset.best_fit()->used(), expected);
    // Best fit decreasing needs at most 11/9 of the least number of sequences, and one.
    const int64_t least = (expected + seq_len - 1) / seq_len;
    EXPECT_LE(dataset.size(), least * 11 / 9 + 1 + corpus.documents() / 4);
  }
}

TEST(BestFit, FillsSequencesOfManyShortDocuments) {
  const Corpus corpus = counting_from_one(random_lengths(5, 5000, 300));
  const Dataset dataset = packed(corpus, 1024);
  const double efficiency = static_cast<double>(dataset.best_fit()->used()) /
                            static_cast<double>(dataset.size() * dataset.seq_len());
  EXPECT_GT(efficiency, 0.995);
}

TEST(BestFit, LongDocumentsFollowThePolicy) {
  const Corpus corpus = counting_from_one({11, 4, 1});  // 10 labels, 3, none
  const auto split = labels_of(packed(corpus, 4));
  EXPECT_EQ(split.size(), 13U);
  EXPECT_EQ(split.at(6), 1);  // the second part does not see the first
  const Dataset truncated = packed(corpus, 4, LongDocuments::Truncate);
  EXPECT_EQ(labels_of(truncated).size(), 7U);
  EXPECT_EQ(truncated.best_fit()->cut(), 1);
  EXPECT_EQ(truncated.best_fit()->dropped_labels(), 6);
  const Dataset dropped = packed(corpus, 4, LongDocuments::Drop);
  EXPECT_EQ(labels_of(dropped).size(), 3U);
  EXPECT_EQ(dropped.best_fit()->dropped(), 1);
  EXPECT_CONTAINS(test::user_error([&] {
                    make_splits(counting_from_one({11}), {.seq_len = 4, .best_fit = LongDocuments::Drop});
                  }),
                  "1 are longer and dropped");
}

TEST(BestFit, PartsWithoutATrainedTokenAreLeftOut) {
  CorpusBuilder builder("chat", 256);
  const auto add = [&](size_t length, size_t first_trained, size_t last_trained) {
    std::vector<int32_t> ids(length, 1);
    std::vector<uint8_t> trained(length, 0);
    std::fill(trained.begin() + static_cast<ptrdiff_t>(first_trained),
              trained.begin() + static_cast<ptrdiff_t>(last_trained), uint8_t{1});
    builder.add_document(ids, trained);
  };
  add(6, 3, 6);
  add(40, 30, 40);  // loses all trained tokens when it is truncated to 8 labels
  add(40, 8, 9);    // keeps the one that is the last label
  add(5, 0, 1);     // the first token is no label
  const Corpus corpus = builder.finish();
  const BestFit truncated(corpus, std::vector<TokenRange>{{0, corpus.tokens()}}, 8, LongDocuments::Truncate);
  EXPECT_EQ(truncated.lost(), 1);
  EXPECT_EQ(truncated.untrained(), 2);
  EXPECT_EQ(truncated.size(), 2);
  EXPECT_EQ(truncated.used(), 5 + 8);
  EXPECT_EQ(truncated.piece(0, 0).begin, 46);
  const BestFit split(corpus, std::vector<TokenRange>{{0, corpus.tokens()}}, 8, LongDocuments::Split);
  EXPECT_EQ(split.lost(), 0);
  EXPECT_EQ(split.used(), 5 + 8 + 7 + 8)
      << "of the second document the last 10 labels, of the third the first 8";
  const Dataset dataset = packed(corpus, 8, LongDocuments::Truncate);
  for (int64_t i = 0; i < dataset.size(); ++i) EXPECT_GT(dataset.valid_labels(i), 0);
}

TEST(BestFit, PaddingIsADocumentOfItsOwn) {
  const Sample s = packed(counting_from_one({3, 2}), 6).get(0);
  EXPECT_EQ(s.tokens, (Row{1, 2, 4, 0, 0, 0}));
  EXPECT_EQ(s.labels, (Row{2, 3, 5, -1, -1, -1}));
  EXPECT_EQ(s.positions, (Row{0, 1, 0, 0, 1, 2}));
  EXPECT_EQ(s.documents, (Row{0, 0, 1, 2, 2, 2}));
}

TEST(BestFit, ValidationTakesWholeDocuments) {
  const Corpus corpus = counting_from_one(random_lengths(8, 400, 60));
  const Splits splits =
      make_splits(corpus, {.seq_len = 64, .validation_fraction = 0.2, .best_fit = LongDocuments::Split});
  const auto train = labels_of(splits.train), validation = labels_of(*splits.validation);
  int64_t labels = 0;
  for (int64_t d = 0; d < corpus.documents(); ++d) {
    const auto begin = static_cast<int32_t>(corpus.offsets()[static_cast<size_t>(d)]),
               end = static_cast<int32_t>(corpus.offsets()[static_cast<size_t>(d) + 1]);
    labels += end - begin - 1;
    for (int32_t t = begin + 2; t < end; ++t) EXPECT_EQ(train.contains(t + 1), train.contains(begin + 2));
  }
  EXPECT_EQ(static_cast<int64_t>(train.size() + validation.size()), labels);
  EXPECT_NEAR(static_cast<double>(validation.size()) / static_cast<double>(labels), 0.2, 0.03);
}

// ---- balance over ranks

TEST(Balance, IsAPermutationThatEvensOutRanks) {
  for (uint64_t trial = 0; trial < 30; ++trial) {
    const auto words = base::philox(11, trial);
    const int64_t micro = 1 + words[0] % 3, dp = 1 + words[1] % 8, accumulation = 1 + words[2] % 4;
    std::vector<int64_t> costs(static_cast<size_t>(micro * dp * accumulation));
    for (size_t i = 0; i < costs.size(); ++i) costs[i] = base::philox(12, trial, i)[0] % 1000;
    const std::vector<int32_t> order = balanced_order(costs, micro, dp);
    std::vector<int32_t> sorted = order;
    std::ranges::sort(sorted);
    for (size_t i = 0; i < sorted.size(); ++i) EXPECT_EQ(sorted[i], static_cast<int32_t>(i));
  }
}

// Simulated costs of attention over documents of very different lengths: the step takes as long as its
// busiest rank.
TEST(Balance, TheBusiestRankHasLittleMoreThanTheMean) {
  std::vector<int64_t> lengths;
  for (uint64_t i = 0; i < 20000; ++i) {
    const double u = (base::philox(13, i)[0] + 1.0) * 0x1p-32;
    lengths.push_back(2 + static_cast<int64_t>(16 / std::sqrt(u)));  // a heavy tail
  }
  const Corpus corpus = counting_from_one(lengths);
  const auto worst_over_mean = [&](bool balanced) {
    const Dataset dataset = packed(corpus, 512);
    Batches batches(dataset, Sampler(1, dataset.size(), Order::Shuffled), {128, 2, 8, 8});
    if (balanced) batches.set_balanced();
    double sum = 0;
    for (int64_t step = 0; step < 5; ++step) {
      int64_t most = 0, all = 0;
      for (int64_t rank = 0; rank < 8; ++rank) {
        const int64_t pairs = batches.visible_pairs(step, rank);
        most = std::max(most, pairs), all += pairs;
      }
      sum += static_cast<double>(most) * 8 / static_cast<double>(all);
    }
    return sum / 5;
  };
  const double as_drawn = worst_over_mean(false), balanced = worst_over_mean(true);
  RecordProperty("as_drawn", fmt::format("{:.4f}", as_drawn));
  RecordProperty("balanced", fmt::format("{:.4f}", balanced));
  EXPECT_GT(as_drawn, 1.2);
  EXPECT_LT(balanced, 1.03);
}

// The batch stays the same set of sequences, and counts agree with what is filled.
TEST(Balance, KeepsTheGlobalBatch) {
  const Dataset dataset = packed(counting_from_one(random_lengths(21, 500, 40)), 32);
  const auto rows = [&](BatchLayout layout, bool balanced, int64_t step) {
    Batches batches(dataset, Sampler(1, dataset.size(), Order::Shuffled), layout);
    if (balanced) batches.set_balanced();
    std::vector<std::pair<Row, int32_t>> all;
    for (int64_t rank = 0; rank < layout.dp; ++rank) {
      int64_t valid = 0;
      for (int64_t m = 0; m < layout.accumulation; ++m) {
        Row ids(static_cast<size_t>(layout.micro * 32)), samples(ids.size());
        valid += batches.fill(step, m, rank, {.ids = ids, .samples = samples});
        for (int64_t i = 0; i < layout.micro; ++i)
          all.emplace_back(Row(ids.begin() + i * 32, ids.begin() + (i + 1) * 32),
                           samples[static_cast<size_t>(i * 32)]);
      }
      EXPECT_EQ(valid, batches.count_labels(step, rank));
    }
    std::ranges::sort(all);
    return all;
  };
  for (int64_t step = 0; step < 3; ++step)
    EXPECT_EQ(rows({16, 2, 2, 4}, true, step), rows({16, 16, 1, 1}, false, step));
}

// ---- fill-in-the-middle

constexpr int32_t kPrefix = 900001, kMiddle = 900002, kSuffix = 900003;

// Undoes the rearrangement of one document's tokens.
Row straightened(const Row& s) {
  const auto at = [&](int32_t id) { return std::find(s.begin(), s.end(), id); };
  const auto prefix = at(kPrefix), suffix = at(kSuffix), middle = at(kMiddle);
  if (prefix == s.end()) return s;
  Row out;
  if (suffix == prefix + 1) {  // suffix first: the prefix and the middle follow each other
    out.assign(middle + 1, s.end());
    out.insert(out.end(), suffix + 1, middle);
  } else {
    out.assign(prefix + 1, suffix);
    out.insert(out.end(), middle + 1, s.end());
    out.insert(out.end(), suffix + 1, middle);
  }
  std::ranges::sort(out);
  return out;
}

TEST(FillInTheMiddle, RearrangesDocumentsAndKeepsTheirTokens) {
  std::vector<int64_t> lengths = random_lengths(31, 300, 60);
  const Corpus corpus = counting_from_one(lengths);
  int rearranged = 0, suffix_first = 0, parts = 0;
  for (const bool best_fit : {false, true}) {
    Dataset dataset = best_fit ? packed(corpus, 64) : Dataset(corpus, 64, true, {{0, corpus.tokens()}});
    dataset.set_fill_in_the_middle({.rate = 0.5,
                                    .suffix_first = 0.25,
                                    .prefix = kPrefix,
                                    .middle = kMiddle,
                                    .suffix = kSuffix,
                                    .key = 7});
    for (int64_t i = 0; i < dataset.size(); ++i) {
      const Sample s = dataset.get(i, 1000 + i);
      EXPECT_EQ(dataset.get(i, 1000 + i).tokens, s.tokens);
      int64_t valid = 0;
      for (size_t from = 0, to = 0; from < s.tokens.size(); from = to) {
        while (to < s.tokens.size() && s.documents[to] == s.documents[from]) ++to;
        for (size_t at = from; at < to; ++at) {
          valid += s.labels[at] != kIgnored;
          EXPECT_TRUE(at + 1 == to || s.labels[at] == kIgnored || s.labels[at] == s.tokens[at + 1]);
        }
        if (s.tokens[from] == 0) continue;  // padding
        Row part(s.tokens.begin() + static_cast<ptrdiff_t>(from),
                 s.tokens.begin() + static_cast<ptrdiff_t>(to));
        if (s.labels[to - 1] != kIgnored) part.push_back(s.labels[to - 1]);
        ++parts;
        if (part[0] != kPrefix) continue;
        ++rearranged;
        suffix_first += part[1] == kSuffix;
        // Three tokens less, and the last one of a document stays last.
        Row straight = straightened(part);
        const bool keeps_end =
            straight.back() != straight.front() + static_cast<int32_t>(straight.size()) - 1;
        for (size_t at = 0; at + 1 + keeps_end < straight.size(); ++at)
          EXPECT_EQ(straight[at + 1], straight[at] + 1);
        if (keeps_end) {
          EXPECT_EQ(part.back(), straight.back());
          EXPECT_EQ(straight.back(), straight.front() + static_cast<int32_t>(straight.size()) + 2);
        }
      }
      EXPECT_EQ(dataset.valid_labels(i), valid);
    }
  }
  EXPECT_GT(rearranged, parts / 4);  // parts of fewer than six tokens stay as they are
  EXPECT_LT(rearranged, parts * 2 / 3);
  EXPECT_GT(suffix_first, rearranged / 8);
  EXPECT_LT(suffix_first, rearranged / 2);
}

TEST(FillInTheMiddle, EveryLayoutAndBufferGetsTheSameTokens) {
  const Corpus corpus = counting_from_one(random_lengths(32, 200, 60));
  Dataset dataset = packed(corpus, 32);
  dataset.set_fill_in_the_middle(
      {.rate = 1, .prefix = kPrefix, .middle = kMiddle, .suffix = kSuffix, .key = 7});
  const auto whole = [&](BatchLayout layout) {
    const Batches batches(dataset, Sampler(1, dataset.size(), Order::Shuffled), layout);
    Row ids, labels;
    for (int64_t m = 0; m < layout.accumulation; ++m)
      for (int64_t rank = 0; rank < layout.dp; ++rank) {
        Row part(static_cast<size_t>(layout.micro * 32)), only(part.size());
        batches.fill(3, m, rank, {.ids = part});
        batches.fill(3, m, rank, {.labels = only});
        ids.insert(ids.end(), part.begin(), part.end());
        labels.insert(labels.end(), only.begin(), only.end());
      }
    return std::pair(ids, labels);
  };
  const auto one = whole({8, 8, 1, 1});
  EXPECT_EQ(whole({8, 1, 2, 4}), one);
  EXPECT_EQ(whole({8, 2, 2, 2}), one);
}

}  // namespace
}  // namespace quintet::data

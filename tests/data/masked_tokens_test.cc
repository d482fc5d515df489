// Masked language modelling: what is chosen, what stands in its place, and that every layout, every continued
// run and every way of asking sees the same.
#include "data/masked_tokens.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "data/batch.h"

namespace quintet::data {
namespace {

using Row = std::vector<int32_t>;
constexpr int64_t kSeq = 32;
constexpr int32_t kVocab = 1000, kMask = 999, kSeparator = 7;

MaskedTokens masking(double rate = 0.15, double random = 0.1, double keep = 0.1) {
  auto special = std::make_shared<std::vector<uint8_t>>(kVocab, uint8_t{0});
  (*special)[kSeparator] = (*special)[kMask] = 1;
  return {.rate = rate,
          .random = random,
          .keep = keep,
          .mask = kMask,
          .vocab = kVocab,
          .key = base::stream_key(3, "data.mlm"),
          .special = std::move(special)};
}

// Documents of uneven length, each with a separator at its end.
Corpus corpus(int64_t tokens) {
  std::vector<Row> documents;
  int64_t count = 0;
  for (uint64_t d = 0; count < tokens; ++d) {
    Row& ids = documents.emplace_back(2 + base::philox(9, d)[0] % 20);
    for (size_t i = 0; i < ids.size(); ++i)
      ids[i] = static_cast<int32_t>(100 + base::philox(11, d, i)[0] % 800);
    ids.back() = kSeparator;
    count += static_cast<int64_t>(ids.size());
  }
  return Corpus::from_documents("test", kVocab, documents);
}

Dataset dataset(int64_t samples, const MaskedTokens& masked, bool best_fit = false) {
  DatasetOptions options{.seq_len = kSeq, .separate_documents = true};
  if (best_fit) options.best_fit = config::LongDocuments::Split;
  Dataset made = make_splits(corpus((samples + 1) * kSeq), options).train;
  made.set_masked_tokens(masked);
  return made;
}

TEST(MaskedTokens, SharesAreThoseOfTheRecipe) {
  const Dataset plain = dataset(2000, {}), masked = dataset(2000, masking());
  double tokens = 0, chosen = 0, hidden = 0, kept = 0, random = 0;
  for (int64_t i = 0; i < masked.size(); ++i) {
    const Sample a = plain.get(i), b = masked.get(i, i);
    EXPECT_EQ(a.positions, b.positions);
    EXPECT_EQ(a.documents, b.documents);
    for (size_t at = 0; at < a.tokens.size(); ++at) {
      const int32_t token = a.tokens[at];
      tokens += token != kSeparator;
      if (b.labels[at] == kIgnored) {
        EXPECT_EQ(b.tokens[at], token) << "what is not chosen stays";
        continue;
      }
      EXPECT_EQ(b.labels[at], token) << "the label is the token itself";
      EXPECT_NE(token, kSeparator) << "special tokens are not chosen";
      ++chosen;
      if (b.tokens[at] == kMask)
        ++hidden;
      else if (b.tokens[at] == token)
        ++kept;
      else
        ++random;
    }
  }
  // Within five standard deviations.
  const auto near = [](double count, double of, double share) {
    EXPECT_LT(std::abs(count - of * share), 5 * std::sqrt(of * share * (1 - share))) << count << " of " << of;
  };
  near(chosen, tokens, 0.15);
  near(hidden, chosen, 0.8 + 0.1 / kVocab);
  near(kept, chosen, 0.1 + 0.1 / kVocab);
  near(random, chosen, 0.1);
}

TEST(MaskedTokens, ExtremeShares) {
  const Dataset plain = dataset(20, {}), all = dataset(20, masking(1, 0, 0)),
                kept = dataset(20, masking(1, 0, 1));
  for (int64_t i = 0; i < plain.size(); ++i) {
    const Sample a = plain.get(i), b = all.get(i), c = kept.get(i);
    for (size_t at = 0; at < a.tokens.size(); ++at) {
      const bool special = a.tokens[at] == kSeparator;
      EXPECT_EQ(b.tokens[at], special ? kSeparator : kMask);
      EXPECT_EQ(b.labels[at], special ? kIgnored : a.tokens[at]);
      EXPECT_EQ(c.labels[at], b.labels[at]);
    }
    EXPECT_EQ(c.tokens, a.tokens);
  }
}

TEST(MaskedTokens, CountsAreThoseOfTheLabels) {
  for (const bool best_fit : {false, true}) {
    const Dataset masked = dataset(50, masking(0.4), best_fit);
    int64_t padded = 0;
    for (int64_t i = 0; i < masked.size(); ++i) {
      const int64_t position = 5 * i + 3;
      const Sample s = masked.get(i, position);
      int64_t valid = 0;
      for (size_t at = 0; at < s.labels.size(); ++at) {
        valid += s.labels[at] != kIgnored;
        padded += s.tokens[at] == 0;
        EXPECT_EQ(masked.has_label(i, static_cast<int64_t>(at), position), s.labels[at] != kIgnored);
        if (s.tokens[at] == 0) {
          EXPECT_EQ(s.labels[at], kIgnored) << "padding is not chosen";
        }
      }
      EXPECT_EQ(masked.valid_labels(i, position), valid);
      // Labels without inputs, and inputs without labels.
      Row labels(kSeq), tokens(kSeq);
      masked.fill(i, {{}, labels, {}, {}}, position);
      masked.fill(i, {tokens, {}, {}, {}}, position);
      EXPECT_EQ(labels, s.labels);
      EXPECT_EQ(tokens, s.tokens);
    }
    EXPECT_EQ(padded > 0, best_fit);
    EXPECT_TRUE(masked.has_labels());
  }
  EXPECT_NE(dataset(4, masking()).get(1, 1).labels, dataset(4, masking()).get(1, 5).labels) << "by epoch";
}

// The global batch of a step, by sequence: the same for every layout, and for a run that starts there.
TEST(MaskedTokens, LayoutsAndContinuedRunsMaskAlike) {
  const auto gathered = [](const BatchLayout& layout, int64_t step, const BatchStart& start) {
    const Dataset set = dataset(64, masking(0.3));
    const Batches batches(set, Sampler(3, set.size(), Order::Shuffled), layout, start);
    std::pair<Row, Row> all{Row(static_cast<size_t>(layout.global * kSeq)),
                            Row(static_cast<size_t>(layout.global * kSeq))};
    int64_t valid = 0, counted = 0;
    for (int64_t dp = 0; dp < layout.dp; ++dp) {
      counted += batches.count_labels(step, dp);
      for (int64_t micro = 0; micro < layout.accumulation; ++micro) {
        const auto at = static_cast<size_t>(batches.place_of(micro, dp, 0) * kSeq),
                   size = static_cast<size_t>(batches.micro_tokens());
        Row types(size, 5);
        valid += batches.fill(step, micro, dp,
                              {.ids = std::span(all.first).subspan(at, size),
                               .labels = std::span(all.second).subspan(at, size),
                               .token_types = types});
        EXPECT_EQ(std::ranges::count(types, 0), std::ssize(types));
      }
    }
    EXPECT_EQ(valid, counted);
    EXPECT_EQ(valid, std::ranges::count_if(all.second, [](int32_t label) { return label >= 0; }));
    EXPECT_GT(valid, 0);
    return all;
  };
  for (const int64_t step : {0, 3, 20}) {
    const auto one = gathered({12, 12, 1, 1}, step, {});
    EXPECT_EQ(one, gathered({12, 2, 3, 2}, step, {}));
    EXPECT_EQ(one, gathered({12, 1, 4, 3}, step, {}));
    EXPECT_EQ(one, gathered({12, 2, 3, 2}, step, {.step = step, .position = 12 * step}));
  }
  EXPECT_NE(gathered({12, 12, 1, 1}, 0, {}), gathered({12, 12, 1, 1}, 1, {}));
}

TEST(MaskedTokens, NothingToChooseIsNoticed) {
  MaskedTokens none = masking();
  none.special = std::make_shared<std::vector<uint8_t>>(kVocab, uint8_t{1});
  EXPECT_FALSE(dataset(4, none).has_labels());
}

TEST(MaskedTokens, EveryTokenSeesItsDocument) {
  const Dataset plain = dataset(4, {}), masked = dataset(4, masking());
  for (int64_t i = 0; i < plain.size(); ++i) {
    const Sample s = plain.get(i);
    int64_t pairs = 0;
    for (const int32_t a : s.documents)
      for (const int32_t b : s.documents) pairs += a == b;
    EXPECT_EQ(masked.visible_pairs(i), pairs);
    EXPECT_LT(plain.visible_pairs(i), pairs);
  }
}

}  // namespace
}  // namespace quintet::data

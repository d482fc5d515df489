#include "data/batch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "base/philox.h"
#include "base/temp_folder.h"

namespace quintet::data {
namespace {

using test::user_error;
using Row = std::vector<int32_t>;
constexpr int64_t kSeq = 6;

Dataset dataset(int64_t samples, bool separate = true) {
  std::vector<Row> documents;
  int32_t next = 0;
  for (uint64_t d = 0; next <= samples * kSeq; ++d) {
    Row& ids = documents.emplace_back(1 + base::philox(9, d)[0] % 8);
    std::iota(ids.begin(), ids.end(), next);
    next += static_cast<int32_t>(ids.size());
  }
  return Dataset(Corpus::from_documents("test", 1 << 20, documents), kSeq, separate, 0, samples);
}

Batches batches(int64_t samples, BatchLayout layout, BatchStart start = {}, LabelMask mask = {},
                Order order = Order::Shuffled) {
  return Batches(dataset(samples), Sampler(3, samples, order), layout, start, std::move(mask));
}

// The five buffers of one step's global batch, assembled by sequence from the ranks' parts.
struct Whole {
  Row ids, labels, positions, documents, samples;
  int64_t valid = 0, counted = 0;
  bool operator==(const Whole&) const = default;
};

Whole gather(const Batches& batches, int64_t step) {
  const auto& layout = batches.layout();
  const auto total = static_cast<size_t>(layout.global * kSeq);
  Whole whole = {Row(total, -9), Row(total, -9), Row(total, -9), Row(total, -9), Row(total, -9)};
  for (int64_t dp = 0; dp < layout.dp; ++dp) {
    whole.counted += batches.count_labels(step, dp);
    for (int64_t micro = 0; micro < layout.accumulation; ++micro) {
      // The documented index, spelled out: other rooms rely on it.
      const auto at = static_cast<size_t>((micro * layout.dp + dp) * layout.micro * kSeq);
      EXPECT_EQ(batches.place_of(micro, dp, 0) * kSeq, static_cast<int64_t>(at));
      const auto size = static_cast<size_t>(batches.micro_tokens());
      const auto part = [&](Row& row) { return std::span(row).subspan(at, size); };
      whole.valid += batches.fill(step, micro, dp,
                                  {part(whole.ids), part(whole.labels), part(whole.positions),
                                   part(whole.documents), part(whole.samples)});
    }
  }
  return whole;
}

TEST(Batches, GlobalBatchDoesNotDependOnTheSplit) {
  const int64_t samples = 29, global = 12;
  const LabelMask odd = [](const LabelSite& site) {
    return (site.sequence + site.position + site.step) % 3 != 0;
  };
  for (const LabelMask& mask : {LabelMask(), odd}) {
    const Batches one = batches(samples, {global, global, 1, 1}, {}, mask);
    for (int64_t micro = 1; micro <= global; ++micro)
      for (int64_t dp = 1; dp <= global; ++dp) {
        if (global % (micro * dp) != 0) continue;
        const Batches split = batches(samples, {global, micro, global / micro / dp, dp}, {}, mask);
        for (int64_t step = 0; step < 6; ++step) EXPECT_EQ(gather(split, step), gather(one, step));
      }
  }
}

TEST(Batches, RowsAreTheSamplersSamples) {
  const Batches some = batches(29, {4, 2, 1, 2});
  const Sampler sampler(3, 29, Order::Shuffled);
  const Dataset data = dataset(29);
  for (int64_t step = 0; step < 10; ++step) {
    const Whole whole = gather(some, step);
    for (int64_t g = 0; g < 4; ++g) {
      const Sample expected = data.get(*sampler.sample_at(step * 4 + g));
      const auto row = [&](const Row& all) {
        return Row(all.begin() + g * kSeq, all.begin() + (g + 1) * kSeq);
      };
      EXPECT_EQ(row(whole.ids), expected.tokens);
      EXPECT_EQ(row(whole.labels), expected.labels);
      EXPECT_EQ(row(whole.positions), expected.positions);
      EXPECT_EQ(row(whole.documents), expected.documents);
      EXPECT_EQ(row(whole.samples), Row(kSeq, static_cast<int32_t>(step * 4 + g)));
    }
  }
}

TEST(Batches, EpochsAreExactAcrossStepBoundaries) {
  const int64_t samples = 10, global = 4;  // five steps are two epochs; the third step crosses
  const Batches some = batches(samples, {global, 1, 2, 2});
  std::map<int64_t, int> seen;
  for (int64_t step = 0; step < 5; ++step)
    for (int64_t g = 0; g < global; ++g) {
      ++seen[some.pick(step, g)->sample];
      if (step * global + g == 9) {
        ASSERT_EQ(seen.size(), 10u);
      }
    }
  ASSERT_EQ(seen.size(), 10u);
  for (const auto& [sample, count] : seen) EXPECT_EQ(count, 2);
}

TEST(Batches, ResumesInAnotherLayoutWithoutLossOrRepeat) {
  const int64_t samples = 31;
  const Batches before = batches(samples, {4, 2, 2, 1});
  std::vector<int64_t> order;
  for (int64_t step = 0; step < 3; ++step)
    for (int64_t g = 0; g < 4; ++g) order.push_back(before.pick(step, g)->sample);
  const Batches after = batches(samples, {6, 1, 1, 6}, {.step = 3, .position = before.position(3)});
  for (int64_t step = 3; step < 8; ++step)
    for (int64_t g = 0; g < 6; ++g) order.push_back(after.pick(step, g)->sample);
  const Sampler sampler(3, samples, Order::Shuffled);
  for (size_t i = 0; i < order.size(); ++i) EXPECT_EQ(order[i], *sampler.sample_at(static_cast<int64_t>(i)));
  EXPECT_EQ(after.position(8), 42);
  EXPECT_THROW(after.position(2), base::InternalError);
}

// A ledger of every sequence that every rank loads: the order of the sampler, no sample skipped or repeated.
TEST(Batches, AGrowingBatchLoadsEverySampleOnceInOrder) {
  for (const int64_t dp : {1, 2, 4}) {
    const BatchLayout layout{.global = 16, .micro = 4 / dp, .accumulation = 4, .dp = dp};
    Batches grows = batches(23, layout, {});
    grows.set_stages({{.step = 0, .position = 0, .accumulation = 1},
                      {.step = 3, .position = 12, .accumulation = 3},
                      {.step = 5, .position = 36, .accumulation = 4}});
    int64_t position = 0;
    for (int64_t step = 0; step < 9; ++step) {
      const int64_t n = step < 3 ? 1 : step < 5 ? 3 : 4;
      EXPECT_EQ(grows.accumulation(step), n);
      EXPECT_EQ(grows.position(step), position);
      std::vector<int64_t> ledger(static_cast<size_t>(4 * n), -1);
      int64_t valid = 0, counted = 0;
      for (int64_t rank = 0; rank < dp; ++rank) {
        counted += grows.count_labels(step, rank);
        for (int64_t micro = 0; micro < n; ++micro) {
          Row samples(static_cast<size_t>(layout.micro * kSeq));
          MicroBatch out;
          out.samples = samples;
          valid += grows.fill(step, micro, rank, out);
          for (int64_t i = 0; i < layout.micro; ++i)
            ledger[static_cast<size_t>(grows.place_of(micro, rank, i))] =
                samples[static_cast<size_t>(i * kSeq)];
        }
      }
      EXPECT_EQ(valid, counted);
      for (const int64_t sample : ledger) EXPECT_EQ(sample, position++) << "step " << step << ", dp " << dp;
    }
    EXPECT_EQ(position, 36 + 4 * 16);
  }
  Batches grows = batches(23, {.global = 4, .micro = 1, .accumulation = 4, .dp = 1}, {});
  EXPECT_THROW(grows.set_stages({{.step = 0, .position = 0, .accumulation = 2}, {.step = 2, .position = 5}}),
               base::InternalError)
      << "a sample is skipped";
}

TEST(Batches, CountsAgreeWithLabels) {
  const std::vector<LabelMask> masks = {{},
                                        [](const LabelSite& s) { return s.sequence % 2 == 0; },
                                        [](const LabelSite& s) { return s.sequence == 5 && s.position == 0; },
                                        [](const LabelSite&) { return false; }};
  for (const LabelMask& mask : masks) {
    const Whole whole = gather(batches(29, {8, 2, 2, 2}, {}, mask), 1);
    const auto valid = static_cast<int64_t>(whole.labels.size()) -
                       std::count(whole.labels.begin(), whole.labels.end(), kIgnored);
    EXPECT_EQ(whole.valid, valid);
    EXPECT_EQ(whole.counted, valid);
  }
}

TEST(Batches, MaskLeavesOneValidToken) {
  int64_t asked_sample = -1;
  const LabelMask one = [&](const LabelSite& site) {
    if (site.sequence == 3) asked_sample = site.sample;
    return site.sequence == 3 && site.position == 2;
  };
  const Batches some = Batches(dataset(29, false), Sampler(3, 29, Order::Shuffled), {4, 1, 2, 2}, {}, one);
  const Whole whole = gather(some, 0);
  EXPECT_EQ(whole.valid, 1);
  EXPECT_EQ(some.count_labels(0, 0), 0);
  EXPECT_EQ(some.count_labels(0, 1), 1);
  EXPECT_NE(whole.labels[3 * kSeq + 2], kIgnored);
  EXPECT_EQ(asked_sample, some.pick(0, 3)->sample);
}

TEST(Batches, EvaluationEndsWithDummies) {
  const Batches some = batches(10, {4, 2, 1, 2}, {}, {}, Order::Sequential);
  EXPECT_EQ(some.steps_per_pass(), 3);
  int64_t valid = 0, expected = 0;
  for (int64_t step = 0; step < 3; ++step) valid += gather(some, step).valid;
  for (int64_t i = 0; i < 10; ++i) expected += some.mixture().dataset(0).valid_labels(i);
  EXPECT_EQ(valid, expected);
  const Whole last = gather(some, 2);
  for (size_t at = 2 * kSeq; at < 4 * kSeq; ++at) {
    EXPECT_EQ(last.ids[at], 0);
    EXPECT_EQ(last.labels[at], kIgnored);
    EXPECT_EQ(last.documents[at], 0);
    EXPECT_EQ(last.positions[at], static_cast<int32_t>(at % kSeq));
  }
  EXPECT_EQ(some.count_labels(2, 1), 0);
}

// Tokens that belong to other ranks are never touched: here they are outside the vocabulary, which reading
// reports.
TEST(Batches, ARankReadsOnlyItsOwnRows) {
  const int64_t samples = 16;
  const Sampler sampler(3, samples, Order::Shuffled);
  Row ids(static_cast<size_t>(samples * kSeq + 1), 300);
  for (int64_t g = 0; g < 8; ++g) {
    const int64_t rank = g / 2 % 2;  // places (m * 2 + rank) * 2 + i
    if (rank != 0) continue;
    const int64_t sample = *sampler.sample_at(g);
    for (int64_t t = sample * kSeq; t <= (sample + 1) * kSeq; ++t) ids[static_cast<size_t>(t)] = 1;
  }
  const Corpus wide = Corpus::from_documents("wide", 301, {ids});
  const Corpus narrow("narrow", wide.bytes(), wide.width(), 300, wide.offsets(),
                      std::make_shared<Corpus>(wide));
  const Batches some(Dataset(narrow, kSeq, false, 0, samples), sampler, {8, 2, 2, 2});
  Row out(2 * kSeq), labels(out.size());
  for (int64_t m = 0; m < 2; ++m) {
    EXPECT_EQ(some.fill(0, m, 0, {.ids = out, .labels = labels}), 2 * kSeq);
    EXPECT_EQ(some.fill(0, m, 1, {}), 2 * kSeq);  // a rank without inputs reads nothing
    some.will_read(0, m);
  }
  EXPECT_CONTAINS(user_error([&] {
                    for (int64_t m = 0; m < 2; ++m) some.fill(0, m, 1, {.ids = out});
                  }),
                  "token 300");
}

// The positions of a context-parallel rank: its tokens and the labels after them are read, and no others,
// which here are outside the vocabulary.
TEST(Batches, AContextRankReadsOnlyItsOwnPositions) {
  const int64_t seq_len = 8;
  const std::vector<PositionRange> outer = {{0, 2}, {6, 2}}, inner = {{2, 4}};
  for (const auto& own : {outer, inner}) {
    Row ids(static_cast<size_t>(2 * seq_len + 1), 300);
    for (int64_t sample = 0; sample < 2; ++sample)
      for (const PositionRange& range : own)
        for (int64_t t = range.begin; t <= range.begin + range.length; ++t)
          ids[static_cast<size_t>(sample * seq_len + t)] = static_cast<int32_t>(sample * seq_len + t);
    // The last label of a sample is the first token of the next one.
    if (own == inner) ids[8] = 300;
    const Corpus wide = Corpus::from_documents("wide", 301, {ids});
    const Corpus narrow("narrow", wide.bytes(), wide.width(), 300, wide.offsets(),
                        std::make_shared<Corpus>(wide));
    const Batches some(Dataset(narrow, seq_len, true, 0, 2), Sampler(3, 2, Order::Sequential), {2, 2, 1, 1});
    Row out(2 * seq_len, -7), labels(out);
    EXPECT_EQ(some.fill(0, 0, 0, {.ids = out, .labels = labels, .wanted = own}), seq_len);
    EXPECT_EQ(some.count_labels(0, 0, own), seq_len);
    for (int64_t sample = 0; sample < 2; ++sample)
      for (const PositionRange& range : own)
        for (int64_t t = range.begin; t < range.begin + range.length; ++t) {
          const int64_t at = sample * seq_len + t;
          EXPECT_EQ(out[static_cast<size_t>(at)], at);
          EXPECT_EQ(labels[static_cast<size_t>(at)], at + 1);
        }
    EXPECT_CONTAINS(user_error([&] { some.fill(0, 0, 0, {.ids = out}); }), "token 300");
  }
}

// Whatever rearranges, masks or packs tokens: the wanted positions are those of the whole, counts and hashes
// add up.
TEST(Batches, PartsOfSequencesAreThoseOfTheWhole) {
  std::vector<Row> documents;
  int32_t next = 0;
  CorpusBuilder flagged("flagged", 1 << 20);
  for (uint64_t d = 0; d < 60; ++d) {
    Row& ids = documents.emplace_back(1 + base::philox(9, d)[0] % 23);
    std::iota(ids.begin(), ids.end(), next);
    next += static_cast<int32_t>(ids.size());
    std::vector<uint8_t> trained(ids.size());
    for (size_t i = 0; i < trained.size(); ++i) trained[i] = base::philox(8, d, i)[0] % 2;
    flagged.add_document(ids, trained);
  }
  const Corpus plain = Corpus::from_documents("plain", 1 << 20, documents), with_flags = flagged.finish();
  const int64_t seq_len = 24, all = plain.tokens();
  const auto streamed = [&](const Corpus& corpus) {
    return Dataset(corpus, seq_len, true, {{3, 100}, {120, all - 120}});
  };
  Dataset packed(with_flags, seq_len, {{0, all}}, config::LongDocuments::Split), filled = streamed(plain),
                                                                                 masked = streamed(plain);
  filled.set_fill_in_the_middle(
      {.rate = 0.8, .suffix_first = 0.5, .prefix = 1, .middle = 2, .suffix = 3, .key = 5});
  masked.set_masked_tokens({.rate = 0.4, .random = 0.2, .keep = 0.2, .mask = 7, .vocab = 1000, .key = 5});
  for (const Dataset& dataset : {streamed(with_flags), packed, filled, masked}) {
    const Batches some(dataset, Sampler(3, dataset.size(), Order::Shuffled), {4, 2, 1, 2});
    for (int64_t step = 0; step < 6; ++step) {
      uint64_t hash = 0;
      int64_t counted = 0;
      for (int64_t dp = 0; dp < 2; ++dp) {
        Row ids(static_cast<size_t>(2 * seq_len)), labels(ids), whole_ids(ids), whole_labels(ids);
        const int64_t valid = some.fill(step, 0, dp, {.ids = whole_ids, .labels = whole_labels});
        int64_t parts = 0;
        // Zig-zag chunks, as of three context ranks.
        for (int64_t rank = 0; rank < 3; ++rank) {
          const std::vector<PositionRange> own = {{4 * rank, 4}, {20 - 4 * rank, 4}};
          std::ranges::fill(ids, -7), std::ranges::fill(labels, -7);
          parts += some.fill(step, 0, dp, {.ids = ids, .labels = labels, .wanted = own});
          counted += some.count_labels(step, dp, own);
          for (const PositionRange& range : own)
            for (int64_t at = range.begin; at < range.begin + range.length; ++at)
              for (const int64_t i : {at, seq_len + at}) {
                EXPECT_EQ(ids[static_cast<size_t>(i)], whole_ids[static_cast<size_t>(i)]);
                EXPECT_EQ(labels[static_cast<size_t>(i)], whole_labels[static_cast<size_t>(i)]);
              }
          // Ids and labels may be loaded by different ranks.
          hash += some.hash_of(step, 0, dp, {.ids = ids}, own);
          hash += some.hash_of(step, 0, dp, {.labels = labels}, own);
        }
        EXPECT_EQ(parts, valid);
      }
      EXPECT_EQ(counted, some.count_labels(step, 0) + some.count_labels(step, 1));
      EXPECT_EQ(hash, some.hash_of_step(step));
    }
  }
}

// Every token, label, position and place in the order is in the hash of a step.
TEST(Batches, AnyChangeChangesTheHashOfAStep) {
  const Batches some = batches(29, {4, 2, 1, 2});
  Row ids(2 * kSeq), labels(ids);
  some.fill(0, 0, 0, {.ids = ids, .labels = labels});
  const auto hash = [&] { return some.hash_of(0, 0, 0, {.ids = ids, .labels = labels}, {}); };
  const uint64_t before = hash();
  std::set<uint64_t> seen = {before};
  for (size_t i = 0; i < ids.size(); ++i)
    for (Row* row : {&ids, &labels}) {
      ++(*row)[i];
      EXPECT_TRUE(seen.insert(hash()).second);
      --(*row)[i];
    }
  std::swap(ids[1], ids[kSeq + 1]);
  EXPECT_TRUE(seen.insert(hash()).second) << "the same position of another sequence";
  std::swap(ids[1], ids[kSeq + 1]);
  EXPECT_TRUE(seen.insert(some.hash_of(1, 0, 0, {.ids = ids, .labels = labels}, {})).second)
      << "another step";
  EXPECT_EQ(hash(), before);
}

// Multi-token prediction: the next row, but never that of another document or past the sequence.
TEST(Batches, NextRowsStayWithinTheDocument) {
  const auto every_third = [](const LabelSite& site) { return site.position % 3 != 0; };
  const Batches some = batches(29, {4, 2, 1, 2}, {}, every_third);
  int64_t kept = 0, ends = 0, masked = 0;
  for (int64_t step = 0; step < 5; ++step) {
    Row ids(2 * kSeq), labels(ids), documents(ids), next_ids(ids), next_labels(ids);
    some.fill(step, 0, 1,
              {.ids = ids,
               .labels = labels,
               .documents = documents,
               .next_ids = next_ids,
               .next_labels = next_labels});
    for (size_t i = 0; i < ids.size(); ++i) {
      const bool has_next = (i + 1) % kSeq != 0 && documents[i + 1] == documents[i];
      EXPECT_EQ(next_ids[i], has_next ? ids[i + 1] : 0);
      EXPECT_EQ(next_labels[i], has_next ? labels[i + 1] : kIgnored);
      ++(has_next ? kept : ends);
      masked += has_next && labels[i + 1] == kIgnored;
    }
  }
  EXPECT_GT(kept, 10);
  EXPECT_GT(ends, 10);
  EXPECT_GT(masked, 3);
  Row alone(2 * kSeq);
  EXPECT_THROW(some.fill(0, 0, 1, {.ids = alone, .next_ids = alone}), base::InternalError);
}

TEST(Batches, UnrequestedBuffersMayBeNull) {
  const Batches some = batches(29, {4, 2, 1, 2});
  Row ids(2 * kSeq);
  EXPECT_EQ(some.fill(0, 0, 1, {.ids = ids}), some.count_labels(0, 1));
  Row wrong(3);
  EXPECT_THROW(some.fill(0, 0, 1, {.ids = wrong}), base::InternalError);
  EXPECT_THROW(some.fill(0, 1, 0, {}), base::InternalError);
  EXPECT_THROW(some.fill(0, 0, 2, {}), base::InternalError);
}

TEST(Batches, ArithmeticThatDoesNotFit) {
  EXPECT_CONTAINS(user_error([] {
                    batches(29, {8, 3, 1, 2});
                  }),
                  "the global batch is 8, but micro 3 x accumulation 1 x data parallel 2 = 6");
  for (const BatchLayout bad : {BatchLayout{0, 1, 1, 1}, {4, -2, 1, 1}, {4, 2, 0, 2}, {4, 4, 1, -1}})
    EXPECT_CONTAINS(user_error([&] { batches(29, bad); }), "must be positive");
}

}  // namespace
}  // namespace quintet::data

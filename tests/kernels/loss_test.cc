#include "kernels/cpu/loss/loss.h"

#include "kernels/support.h"

namespace quintet::kernels::cpu::test {
namespace {

template <class T>
class Loss : public testing::Test {};
TYPED_TEST_SUITE(Loss, AllTypes);

struct Reference {
  std::vector<double> row_loss, dlogits;
  double sum = 0;
};

Reference reference(const std::vector<double>& logits, int64_t rows, int64_t columns, int64_t valid,
                    const std::vector<int32_t>& labels, double seed) {
  Reference out;
  out.row_loss.resize(rows);
  out.dlogits.resize(rows * columns);
  for (int64_t r = 0; r < rows; ++r) {
    if (labels[r] < 0) continue;
    const double* x = logits.data() + r * columns;
    double max = x[0], sum = 0;
    for (int64_t c = 0; c < valid; ++c) max = std::max(max, x[c]);
    for (int64_t c = 0; c < valid; ++c) sum += std::exp(x[c] - max);
    for (int64_t c = 0; c < valid; ++c)
      out.dlogits[r * columns + c] = seed * (std::exp(x[c] - max) / sum - (c == labels[r] ? 1 : 0));
    out.row_loss[r] = std::log(sum) + max - x[labels[r]];
    out.sum += out.row_loss[r];
  }
  return out;
}

TYPED_TEST(Loss, WholeAndShardedMatchReference) {
  using T = TypeParam;
  using S = Stat<T>;
  for (const auto& [rows, columns, valid] : {std::tuple<int64_t, int64_t, int64_t>{1, 1, 1},
                                             {5, 7, 7},
                                             {40, 72, 65},
                                             {33, 1000, 997},
                                             {3, 20000, 20000}}) {
    SCOPED_TRACE(testing::Message() << rows << " x " << columns);
    const double seed = 0.37;
    const auto logits = random_values<T>(rows * columns, 61, 3.0);
    std::vector<int32_t> labels;
    for (int64_t r = 0; r < rows; ++r)
      labels.push_back(static_cast<int32_t>(r % 4 == 3 ? -1 : (r * 31 + 2) % valid));
    const Reference want = reference(logits, rows, columns, valid, labels, seed);
    // The sum of exponentials has `valid` positive terms; its relative error is the absolute one of the loss.
    const double e = unit<S>() * (static_cast<double>(valid) / 8 + 64);
    run_everywhere([&](ThreadPool& pool) {
      Buffer<uint8_t> workspace(cross_entropy_workspace_bytes(rows));
      Buffer<T> whole(logits), kept(logits);
      Buffer<double> row_loss(rows);
      double sum = -1, again = 100;
      cross_entropy<T>(kept.data(), rows, columns, valid, labels.data(), nullptr, false, &again, true,
                       row_loss.data(), nullptr, pool);
      EXPECT_EQ(kept.values(), logits);
      cross_entropy<T>(whole.data(), rows, columns, valid, labels.data(), &seed, true, &sum, false, nullptr,
                       workspace.data(), pool);
      EXPECT_NEAR(sum, want.sum, e * rows);
      EXPECT_NEAR(again, 100 + want.sum, e * rows);
      expect_near(
          row_loss, want.row_loss, [&](int64_t) { return e; }, "row loss");
      const auto slack = [&](int64_t) { return 2 * e * seed; };
      expect_near(whole, want.dlogits, slack, "dlogits");

      // Three shards of the vocabulary, the last with the padding columns.
      const int64_t cuts[4] = {0, columns / 3, columns / 2, columns};
      std::vector<Buffer<T>> shards;
      std::vector<S> max(rows, -std::numeric_limits<S>::infinity()), sumexp(rows), target(rows);
      for (int pass = 0; pass < 3; ++pass)
        for (int s = 0; s < 3; ++s) {
          const int64_t begin = cuts[s], width = cuts[s + 1] - begin;
          const int64_t shard_valid = std::max<int64_t>(0, std::min(valid - begin, width));
          if (pass == 0) {
            std::vector<double> part;
            for (int64_t r = 0; r < rows; ++r)
              for (int64_t c = 0; c < width; ++c) part.push_back(logits[r * columns + begin + c]);
            shards.emplace_back(part);
            Buffer<S> m(rows);
            row_max<T>(shards[s].data(), rows, width, shard_valid, m.data(), pool);
            for (int64_t r = 0; r < rows; ++r) max[r] = std::max(max[r], m.data()[r]);
          } else if (pass == 1) {
            Buffer<S> se(rows), t(rows);
            row_sumexp<T>(shards[s].data(), rows, width, shard_valid, begin, labels.data(), max.data(),
                          se.data(), t.data(), pool);
            for (int64_t r = 0; r < rows; ++r) {
              sumexp[r] += se.data()[r];
              target[r] += t.data()[r];
            }
          } else {
            double shard_sum = 5;
            cross_entropy_backward<T>(shards[s].data(), rows, width, shard_valid, begin, labels.data(),
                                      max.data(), sumexp.data(), target.data(), &seed, true, &shard_sum, true,
                                      nullptr, workspace.data(), pool);
            EXPECT_NEAR(shard_sum, 5 + want.sum, e * rows);
            std::vector<double> expected;
            for (int64_t r = 0; r < rows; ++r)
              for (int64_t c = 0; c < width; ++c) expected.push_back(want.dlogits[r * columns + begin + c]);
            expect_near(shards[s], expected, slack, "sharded dlogits");
          }
        }
      return bytes_of(whole, row_loss, shards[0], shards[1], shards[2]);
    });
  }
}

TEST(LossEdges, NanAndHugeLogits) {
  ThreadPool pool(1);
  Buffer<uint8_t> workspace(cross_entropy_workspace_bytes(2));
  const double seed = 1;
  double sum = 0;
  for (Isa set : instruction_sets()) {
    limit_isa(set);
    std::vector<double> x(2 * 40, 0.0);
    x[3] = 3e38;
    x[40 + 33] = std::nan("");
    Buffer<float> logits(x);
    const int32_t labels[2] = {3, 0};
    Buffer<double> row_loss(2);
    Buffer<float> max(2);
    row_max<float>(logits.data(), 2, 40, 40, max.data(), pool);
    EXPECT_EQ(max[0], static_cast<float>(3e38));
    EXPECT_TRUE(std::isnan(max[1]));
    cross_entropy<float>(logits.data(), 2, 40, 40, labels, &seed, true, &sum, false, row_loss.data(),
                         workspace.data(), pool);
    EXPECT_EQ(row_loss[0], 0);
    EXPECT_TRUE(std::isnan(row_loss[1]));
    EXPECT_TRUE(std::isnan(sum));
    EXPECT_EQ(logits[3], 0);
  }
  limit_isa(Isa::Avx512);
}

}  // namespace
}  // namespace quintet::kernels::cpu::test

// Loads, balance losses, z-loss and the selection bias against references that follow the definitions.
#include "kernels/cpu/experts/balance.h"

#include <algorithm>

#include "kernels/support.h"

namespace quintet::kernels::cpu::test {
namespace {

using StatTypes = testing::Types<double, float>;

// Rows of positive numbers that sum to 1, some of them 0.
template <class S>
std::vector<double> probabilities(int64_t rows, int64_t experts, uint64_t seed) {
  auto p = random_values<double>(rows * experts, seed);
  for (int64_t r = 0; r < rows; ++r) {
    double sum = 0;
    for (int64_t i = 0; i < experts; ++i) {
      double& v = p[r * experts + i];
      v = v > 1.5 ? 0 : std::exp(v);
      sum += v;
    }
    for (int64_t i = 0; i < experts; ++i) p[r * experts + i] = value(element<S>(p[r * experts + i] / sum));
  }
  return p;
}

std::vector<int32_t> choices(int64_t rows, int64_t experts, int64_t k) {
  std::vector<int32_t> c;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t j = 0; j < k; ++j) c.push_back(static_cast<int32_t>((r * r + j) % experts));
  return c;
}

template <class S>
class Balance : public testing::Test {};
TYPED_TEST_SUITE(Balance, StatTypes);

TYPED_TEST(Balance, Load) {
  using S = TypeParam;
  for (const LoadShape s :
       {LoadShape{1, 4, 2}, LoadShape{37, 6, 3}, LoadShape{2500, 16, 2}, LoadShape{0, 4, 1}})
    for (const bool accumulate : {false, true}) {
      SCOPED_TRACE(testing::Message() << s.rows << " rows, accumulate " << accumulate);
      const auto p = probabilities<S>(s.rows, s.experts, 1);
      const auto chosen = choices(s.rows, s.experts, s.k);
      auto kept = chosen;
      for (size_t i = 0; i < kept.size(); i += 5) kept[i] = -1;
      std::vector<double> want(static_cast<size_t>(s.experts + 2), accumulate ? 1.0 : 0.0);
      for (size_t i = 0; i < chosen.size(); ++i) {
        want[static_cast<size_t>(chosen[i])] += 1;
        want[static_cast<size_t>(s.experts)] += i % 5 == 0;
      }
      for (const double v : p) want.back() -= v > 0 ? v * std::log(v) : 0;
      const Buffer<S> scores(p);
      run_everywhere([&](ThreadPool& pool) {
        Buffer<double> load(std::vector<double>(static_cast<size_t>(s.experts + 2), 1.0));
        Buffer<uint8_t> work(expert_load_workspace_bytes(s));
        expert_load<S>(s, chosen.data(), kept.data(), scores.data(), load.data(), accumulate, work.data(),
                       pool);
        // Counts are exact; each term of the entropy is rounded to S twice, and both sides sum in
        // double.
        const double terms = static_cast<double>(s.rows * s.experts);
        const auto slack = [&](int64_t i) {
          return i == s.experts + 1 ? (4 * unit<S>() + terms * 0x1p-53) * (want.back() + 1) : 0.0;
        };
        expect_near(load, want, slack, "load");
        return bytes_of(load);
      });
    }
}

TYPED_TEST(Balance, UniformScoresHaveTheEntropyOfTheirNumber) {
  using S = TypeParam;
  ThreadPool pool(1);
  const LoadShape s{2, 8, 1};
  const std::vector<int32_t> chosen = {3, 3};
  const Buffer<S> scores(std::vector<double>(16, 0.125));
  Buffer<double> load(10);
  Buffer<uint8_t> work(expert_load_workspace_bytes(s));
  expert_load<S>(s, chosen.data(), chosen.data(), scores.data(), load.data(), false, work.data(), pool);
  EXPECT_EQ(load[3], 2);
  EXPECT_EQ(load[8], 0);
  EXPECT_NEAR(load[9], 2 * std::log(8.0), 8 * unit<S>());
}

// The sequence of each row, by the definition in base/row_order.h.
std::vector<int64_t> sequences(const base::RowOrder& o) {
  std::vector<int64_t> out;
  for (int64_t c = 0; c < o.ranks; ++c)
    for (int64_t q = 0; q < o.sequences; ++q)
      for (int64_t p = 0; p < o.seq_len / o.ranks; ++p) out.push_back(q);
  return out;
}

TYPED_TEST(Balance, SumsAndTheirGradient) {
  using S = TypeParam;
  const int64_t experts = 6, k = 2;
  for (const base::RowOrder o :
       {base::RowOrder{.seq_len = 5, .sequences = 3}, base::RowOrder{.seq_len = 400, .sequences = 1},
        base::RowOrder{.seq_len = 16, .sequences = 3, .ranks = 4, .first = 0, .count = 4},
        base::RowOrder{.seq_len = 240, .sequences = 2, .ranks = 2, .first = 0, .count = 2}}) {
    SCOPED_TRACE(testing::Message() << o.sequences << " sequences of " << o.seq_len << ", ranks " << o.ranks);
    const auto p = probabilities<S>(o.rows(), experts, 2);
    const auto chosen = choices(o.rows(), experts, k);
    const auto sequence = sequences(o);
    const auto dsums = random_values<S>(o.sequences * 2 * experts, 3);
    std::vector<double> want(static_cast<size_t>(o.sequences * 2 * experts)), dscores;
    for (int64_t r = 0; r < o.rows(); ++r) {
      const int64_t group = sequence[static_cast<size_t>(r)] * 2 * experts;
      for (int64_t j = 0; j < k; ++j) want[group + chosen[r * k + j]] += 1;
      for (int64_t i = 0; i < experts; ++i) {
        want[group + experts + i] += p[r * experts + i];
        dscores.push_back(dsums[group + experts + i]);
      }
    }
    const Buffer<S> scores(p), grad(dsums);
    run_everywhere([&](ThreadPool& pool) {
      Buffer<S> sums(o.sequences * 2 * experts), back(o.rows() * experts);
      Buffer<uint8_t> work(balance_sums_workspace_bytes(o, experts));
      balance_sums<S>(o, experts, k, scores.data(), chosen.data(), sums.data(), work.data(), pool);
      balance_dx<S>(o, experts, grad.data(), back.data(), pool);
      expect_near(
          sums, want, [](int64_t) { return 1e-12; }, "sums");
      expect_near(
          back, dscores, [](int64_t) { return 0.0; }, "dscores");
      return bytes_of(sums, back);
    });
  }
}

// The rows of a sequence are added in the order of positions: the bits do not depend on the sharding.
TYPED_TEST(Balance, SumsDoNotDependOnTheContextRanks) {
  using S = TypeParam;
  const int64_t experts = 4, k = 1, seq_len = 96, chunk = seq_len / 6;
  const auto p = probabilities<S>(seq_len, experts, 4);
  const auto chosen = choices(seq_len, experts, k);
  std::vector<double> cut;  // three ranks
  std::vector<int32_t> cut_chosen;
  for (int64_t c = 0; c < 3; ++c)
    for (const int64_t piece : {c, 5 - c})
      for (int64_t at = piece * chunk; at < (piece + 1) * chunk; ++at) {
        cut.insert(cut.end(), p.begin() + at * experts, p.begin() + (at + 1) * experts);
        cut_chosen.push_back(chosen[static_cast<size_t>(at)]);
      }
  ThreadPool pool(2);
  const auto sums = [&](const base::RowOrder& o, const std::vector<double>& scores, const int32_t* c) {
    const Buffer<S> in(scores);
    Buffer<S> out(2 * experts);
    Buffer<uint8_t> work(balance_sums_workspace_bytes(o, experts));
    balance_sums<S>(o, experts, k, in.data(), c, out.data(), work.data(), pool);
    return out.bytes();
  };
  EXPECT_EQ(
      sums({.seq_len = seq_len, .sequences = 1}, p, chosen.data()),
      sums({.seq_len = seq_len, .sequences = 1, .ranks = 3, .first = 0, .count = 3}, cut, cut_chosen.data()));
}

TYPED_TEST(Balance, Loss) {
  using S = TypeParam;
  const BalanceLoss s{.groups_here = 2, .groups = 6, .tokens = 10, .experts = 4, .k = 2, .coefficient = 0.25};
  const std::vector<double> sums = {8, 6, 4, 2, 4, 3, 2, 1, 5, 5, 5, 5, 1, 2, 3, 4};
  const std::vector<double> running = {30, 10, 40, 20, 7, 7, 7, 7};
  for (const bool global : {false, true}) {
    double want = 0;
    std::vector<double> slope;
    for (int64_t g = 0; g < 2; ++g) {
      slope.insert(slope.end(), 4, 0.0);
      for (int64_t i = 0; i < 4; ++i) {
        const double f = global ? running[i] / 100 : sums[g * 8 + i] / 20;
        want += 0.25 / 6 * 4 * f * sums[g * 8 + 4 + i] / 10;
        slope.push_back(0.25 / 6 * 4 * f / 10);
      }
    }
    const Buffer<S> in(sums);
    for (const bool accumulate : {false, true}) {
      Buffer<S> out(16);
      double loss = 3;
      balance_loss<S>(s, in.data(), global ? running.data() : nullptr, &loss, accumulate, out.data());
      EXPECT_NEAR(loss, want + (accumulate ? 3 : 0), 1e-14);
      expect_near(
          out, slope, [](int64_t) { return 1e-17; }, "slope");
    }
  }
}

// Perfect balance: f = P = 1 / experts, so the loss is its coefficient.
TYPED_TEST(Balance, ABalancedLossIsItsCoefficient) {
  using S = TypeParam;
  const BalanceLoss s{.groups_here = 1, .groups = 1, .tokens = 16, .experts = 4, .k = 2, .coefficient = 0.5};
  const Buffer<S> sums(std::vector<double>{8, 8, 8, 8, 4, 4, 4, 4});
  Buffer<S> slope(8);
  double loss = 0;
  balance_loss<S>(s, sums.data(), nullptr, &loss, false, slope.data());
  EXPECT_EQ(loss, 0.5);
  const std::vector<double> nothing(8, 0.0);
  balance_loss<S>(s, sums.data(), nothing.data(), &loss, false, slope.data());
  EXPECT_EQ(loss, 0);
}

TYPED_TEST(Balance, ZLoss) {
  using S = TypeParam;
  for (const auto& [rows, experts] : {std::pair<int64_t, int64_t>{1, 1}, {9, 5}, {700, 8}, {0, 4}})
    for (const bool accumulate : {false, true}) {
      SCOPED_TRACE(testing::Message() << rows << " x " << experts);
      const double coefficient = 0.01, dloss = 3;
      auto x = random_values<S>(rows * experts, 5);
      if (rows > 1) x[0] = 200;  // past the range of exp() in f32
      std::vector<double> want_dx;
      double want = accumulate ? 7.0 : 0.0;
      for (int64_t r = 0; r < rows; ++r) {
        const double max = *std::max_element(x.begin() + r * experts, x.begin() + (r + 1) * experts);
        double sum = 0;
        for (int64_t i = 0; i < experts; ++i) sum += std::exp(x[r * experts + i] - max);
        const double l = max + std::log(sum);
        want += coefficient * l * l;
        for (int64_t i = 0; i < experts; ++i)
          want_dx.push_back(dloss * coefficient * 2 * l * std::exp(x[r * experts + i] - l));
      }
      const Buffer<S> logits(x);
      run_everywhere([&](ThreadPool& pool) {
        Buffer<double> loss(std::vector<double>{7});
        Buffer<S> dx(rows * experts);
        Buffer<uint8_t> work(z_loss_workspace_bytes(rows));
        z_loss<S>(logits.data(), rows, experts, coefficient, loss.data(), accumulate, work.data(), pool);
        z_loss_dx<S>(logits.data(), rows, experts, coefficient, &dloss, dx.data(), pool);
        EXPECT_NEAR(loss[0], want, 32 * unit<S>() * want);
        // Next to the large logit the others' share is not representable in f32.
        const auto slack = [&](int64_t i) {
          return 64 * unit<S>() * std::abs(want_dx[i]) + std::numeric_limits<float>::min();
        };
        expect_near(dx, want_dx, slack, "dx");
        return bytes_of(loss, dx);
      });
    }
}

TYPED_TEST(Balance, BiasMovesAgainstTheLoad) {
  using S = TypeParam;
  const std::vector<double> load = {4, 0, 2, 2, 1e9, 1e9};  // dropped and entropy after the experts
  Buffer<S> bias(std::vector<double>{0.5, 0.5, 0.5, 0.5});
  update_bias<S>(load.data(), 4, 0.125, bias.data());
  EXPECT_EQ(bias.values(), (std::vector<double>{0.375, 0.625, 0.5, 0.5}));
}

// ---- docs/experts.md: coefficients of other software. Each loss is written as its source has it.

constexpr int64_t kBlocks = 3, kRows = 40, kExperts = 6, kTop = 2;

// The scores of a block's rows, and the experts with the largest.
struct Routing {
  std::vector<double> scores;
  std::vector<int32_t> chosen;
};
Routing routing(uint64_t seed) {
  Routing r{.scores = probabilities<double>(kRows, kExperts, seed), .chosen = {}};
  for (int64_t t = 0; t < kRows; ++t) {
    std::vector<int32_t> order(kExperts);
    for (int32_t e = 0; e < kExperts; ++e) order[static_cast<size_t>(e)] = e;
    const double* const p = r.scores.data() + t * kExperts;
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return p[a] > p[b]; });
    r.chosen.insert(r.chosen.end(), order.begin(), order.begin() + kTop);
  }
  return r;
}

// One block, with the kernels of a run.
double own_loss(const Routing& r, double coefficient) {
  const base::RowOrder order{.seq_len = kRows, .sequences = 1};
  ThreadPool pool(1);
  const Buffer<double> scores(r.scores);
  Buffer<double> sums(2 * kExperts), slope(2 * kExperts);
  Buffer<uint8_t> work(balance_sums_workspace_bytes(order, kExperts));
  balance_sums<double>(order, kExperts, kTop, scores.data(), r.chosen.data(), sums.data(), work.data(), pool);
  double loss = 0;
  balance_loss<double>({.groups_here = 1,
                        .groups = 1,
                        .tokens = kRows,
                        .experts = kExperts,
                        .k = kTop,
                        .coefficient = coefficient},
                       sums.data(), nullptr, &loss, false, slope.data());
  return loss;
}

// Megatron-Core, switch_load_balancing_loss_func: of one block.
double megatron_loss(const Routing& r, double coefficient) {
  std::vector<double> probs(kExperts), tokens_per_expert(kExperts);
  for (int64_t t = 0; t < kRows; ++t) {
    for (int64_t e = 0; e < kExperts; ++e) probs[e] += r.scores[t * kExperts + e];
    for (int64_t j = 0; j < kTop; ++j) ++tokens_per_expert[r.chosen[t * kTop + j]];
  }
  double sum = 0;
  for (int64_t e = 0; e < kExperts; ++e) sum += probs[e] * tokens_per_expert[e];
  return sum * (kExperts * coefficient / (kTop * kRows * kRows));
}

// Hugging Face transformers, load_balancing_loss_func: of all blocks at once. tokens_per_expert[j] is the
// mean of the one-hot masks of choice j over the rows of all blocks.
double hugging_face_loss(const std::vector<Routing>& blocks, double coefficient) {
  const double rows = static_cast<double>(blocks.size()) * kRows;
  std::vector<double> tokens_per_expert(kTop * kExperts), router_prob_per_expert(kExperts);
  for (const Routing& r : blocks)
    for (int64_t t = 0; t < kRows; ++t) {
      for (int64_t j = 0; j < kTop; ++j) tokens_per_expert[j * kExperts + r.chosen[t * kTop + j]] += 1 / rows;
      for (int64_t e = 0; e < kExperts; ++e) router_prob_per_expert[e] += r.scores[t * kExperts + e] / rows;
    }
  double overall = 0;
  for (int64_t j = 0; j < kTop; ++j)
    for (int64_t e = 0; e < kExperts; ++e)
      overall += tokens_per_expert[j * kExperts + e] * router_prob_per_expert[e];
  return coefficient * overall * kExperts;
}

// DeepSeek-V3's technical report, (17) to (20): of one sequence in one block.
double deepseek_loss(const Routing& r, double alpha) {
  double sum = 0;
  for (int64_t e = 0; e < kExperts; ++e) {
    double f = 0, p = 0;
    for (int64_t t = 0; t < kRows; ++t) {
      for (int64_t j = 0; j < kTop; ++j) f += r.chosen[t * kTop + j] == e;
      p += r.scores[t * kExperts + e];
    }
    sum += f * kExperts / (kTop * kRows) * p / kRows;
  }
  return alpha * sum;
}

TEST(BalanceCoefficients, ConvertAsTheDocumentationSays) {
  const double c = 0.02, to_own = static_cast<double>(kTop) / kBlocks;
  std::vector<Routing> alike, different;
  for (int64_t b = 0; b < kBlocks; ++b) {
    alike.push_back(routing(11));
    different.push_back(routing(11 + static_cast<uint64_t>(b)));
  }
  const auto own = [&](const std::vector<Routing>& blocks, double coefficient) {
    double sum = 0;
    for (const Routing& r : blocks) sum += own_loss(r, coefficient);
    return sum;
  };
  for (const Routing& r : different) {
    const double loss = own_loss(r, c);
    EXPECT_GT(loss, c);  // equal loads would give c
    EXPECT_NEAR(loss, megatron_loss(r, c), 1e-15);
    EXPECT_NEAR(loss, deepseek_loss(r, c), 1e-15);
  }
  // Hugging Face: c x top_k / blocks where blocks are loaded alike, and another function where they are not.
  EXPECT_NEAR(own(alike, c * to_own), hugging_face_loss(alike, c), 1e-15);
  EXPECT_GT(std::abs(own(different, c * to_own) - hugging_face_loss(different, c)), 1e-4 * c);
  EXPECT_GT(std::abs(own(alike, c) - hugging_face_loss(alike, c)), 0.1 * c) << "the factor is not one";
}

}  // namespace
}  // namespace quintet::kernels::cpu::test

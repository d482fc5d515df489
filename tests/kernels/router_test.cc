// The router's matmuls, the choice of experts and dropping, against references that follow the definitions
// literally.
#include "kernels/cpu/experts/router.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "base/philox.h"
#include "kernels/cpu/experts/router_limit.h"
#include "kernels/cpu/experts/router_select.h"
#include "kernels/support.h"

namespace quintet::kernels::cpu::test {
namespace {

using StatTypes = testing::Types<double, float>;

template <class T>
class RouterMatmul : public testing::Test {};
TYPED_TEST_SUITE(RouterMatmul, AllTypes);

TYPED_TEST(RouterMatmul, MatchReference) {
  using T = TypeParam;
  using S = Stat<T>;
  for (const RouterShape s : {RouterShape{1, 4, 8}, RouterShape{70, 8, 48}, RouterShape{300, 6, 40},
                              RouterShape{512, 3, 16}, RouterShape{0, 4, 8}}) {
    SCOPED_TRACE(testing::Message() << s.rows << " x " << s.routes << " x " << s.embed);
    const auto x = random_values<T>(s.rows * s.embed, 1), w = random_values<T>(s.routes * s.embed, 2);
    const auto dlogits = random_values<S>(s.rows * s.routes, 3),
               before = random_values<S>(s.routes * s.embed, 4);
    std::vector<double> logits(s.rows * s.routes), dx(s.rows * s.embed), dw(s.routes * s.embed);
    std::vector<double> size_logits(logits.size()), size_dx(dx.size()), size_dw(dw.size());
    for (int64_t r = 0; r < s.rows; ++r)
      for (int64_t i = 0; i < s.routes; ++i)
        for (int64_t e = 0; e < s.embed; ++e) {
          const double a = x[r * s.embed + e], b = w[i * s.embed + e], d = dlogits[r * s.routes + i];
          logits[r * s.routes + i] += a * b;
          dx[r * s.embed + e] += d * b;
          dw[i * s.embed + e] += d * a;
          size_logits[r * s.routes + i] += std::abs(a * b);
          size_dx[r * s.embed + e] += std::abs(d * b);
          size_dw[i * s.embed + e] += std::abs(d * a);
        }
    // A sum of n products in S has an error of at most n units of the sum of their magnitudes.
    const auto bound = [](const std::vector<double>& sizes, int64_t n) {
      return [&sizes, n](int64_t i) { return static_cast<double>(n + 1) * unit<S>() * sizes[i]; };
    };
    const Buffer<T> in_x(x), in_w(w);
    const Buffer<S> in_d(dlogits);
    for (const bool accumulate : {false, true}) {
      run_everywhere([&](ThreadPool& pool) {
        Buffer<S> out(s.rows * s.routes), grad(before);
        Buffer<T> back(s.rows * s.embed);
        Buffer<uint8_t> work(std::max({router_workspace_bytes<T>(s, pool.threads()),
                                       router_dx_workspace_bytes<T>(s, pool.threads()),
                                       router_dw_workspace_bytes<T>(s, pool.threads())}));
        router<T>(s, in_x.data(), in_w.data(), out.data(), work.data(), pool);
        router_dx<T>(s, in_d.data(), in_w.data(), back.data(), work.data(), pool);
        router_dw<T>(s, in_d.data(), in_x.data(), grad.data(), accumulate, work.data(), pool);
        expect_near(out, logits, bound(size_logits, s.embed), "logits");
        expect_near(back, dx, bound(size_dx, s.routes), "dx");
        auto expected = dw;
        auto sizes = size_dw;
        for (size_t i = 0; accumulate && i < dw.size(); ++i) {
          expected[i] += before[i];
          sizes[i] += std::abs(before[i]);
        }
        expect_near(grad, expected, bound(sizes, s.rows + 2), "dw");
        return bytes_of(out, back, grad);
      });
    }
  }
}

// A row's logits have the same bits wherever they are computed: an expert must not be chosen on one rank and
// not on another.
TYPED_TEST(RouterMatmul, ARowDependsOnItselfAlone) {
  using T = TypeParam;
  using S = Stat<T>;
  const RouterShape s{65, 24, 100};
  const Buffer<T> x(random_values<T>(s.rows * s.embed, 1)), w(random_values<T>(s.routes * s.embed, 2));
  ThreadPool pool(2);
  Buffer<uint8_t> work(router_workspace_bytes<T>(s, 2));
  Buffer<S> whole(s.rows * s.routes), part(s.rows * s.routes);
  router<T>(s, x.data(), w.data(), whole.data(), work.data(), pool);
  for (int64_t first = 0; first < s.rows; first += 13) {
    const RouterShape p{13, s.routes, s.embed};
    Buffer<uint8_t> small(router_workspace_bytes<T>(p, 2));
    router<T>(p, x.data() + first * s.embed, w.data(), part.data() + first * s.routes, small.data(), pool);
  }
  EXPECT_EQ(whole.bytes(), part.bytes());
}

struct Selected {
  std::vector<double> scores, weights;
  std::vector<int32_t> chosen;
};

// One row at a time, by sorting.
Selected reference(const SelectShape& s, const std::vector<double>& logits, const std::vector<double>& bias,
                   const std::vector<int32_t>& positions) {
  Selected out;
  for (int64_t r = 0; r < s.rows; ++r) {
    const std::vector<double> z(logits.begin() + r * s.experts, logits.begin() + (r + 1) * s.experts);
    std::vector<double> raw(z.size()), key(z.size());
    double sum = 0;
    for (size_t i = 0; i < z.size(); ++i) {
      raw[i] = s.score == Score::Sigmoid        ? 1 / (1 + std::exp(-z[i]))
               : s.score == Score::SqrtSoftplus ? std::sqrt(std::log(1 + std::exp(z[i])))
                                                : std::exp(z[i]);
      sum += raw[i];
    }
    if (s.score == Score::Softmax)
      for (double& p : raw) p /= sum;
    for (size_t i = 0; i < z.size(); ++i) {
      out.scores.push_back(s.score == Score::Softmax ? raw[i] : raw[i] / sum);
      key[i] = (s.top_k_first ? z[i] : raw[i]) + (bias.empty() ? 0 : bias[i]);
    }

    std::vector<std::pair<double, int64_t>> groups;  // (-value, group): sorted, the best come first
    const int64_t size = s.experts / s.groups;
    for (int64_t g = 0; g < s.groups; ++g) {
      std::vector<double> members(key.begin() + g * size, key.begin() + (g + 1) * size);
      std::sort(members.rbegin(), members.rend());
      groups.push_back({-(members[0] + (!bias.empty() && size > 1 ? members[1] : 0)), g});
    }
    std::sort(groups.begin(), groups.end());
    std::set<int64_t> allowed;
    for (int64_t g = 0; g < s.groups_kept; ++g) allowed.insert(groups[static_cast<size_t>(g)].second);
    std::vector<std::pair<double, int64_t>> experts;
    for (int64_t i = 0; i < s.experts; ++i)
      if (allowed.contains(i / size)) experts.push_back({-key[static_cast<size_t>(i)], i});
    std::sort(experts.begin(), experts.end());

    std::vector<double> w;
    for (int64_t j = 0; j < s.k; ++j) {
      const int64_t e = positions.empty() ? experts[static_cast<size_t>(j)].second
                                          : (positions[static_cast<size_t>(r)] * s.k + j) % s.experts;
      out.chosen.push_back(static_cast<int32_t>(e));
      w.push_back(s.top_k_first ? std::exp(z[static_cast<size_t>(e)]) : raw[static_cast<size_t>(e)]);
    }
    const double total = std::accumulate(w.begin(), w.end(), 0.0);
    for (const double v : w) out.weights.push_back(s.scale * (s.normalise || s.top_k_first ? v / total : v));
  }
  return out;
}

template <class S>
struct Result {
  Buffer<S> scores, weights;
  Buffer<int32_t> chosen;
};

template <class S>
Result<S> run_select(const SelectShape& s, const std::vector<double>& logits, const std::vector<double>& bias,
                     const std::vector<int32_t>& positions, ThreadPool& pool) {
  Result<S> out{Buffer<S>(s.rows * s.experts), Buffer<S>(s.rows * s.k), Buffer<int32_t>(s.rows * s.k)};
  Buffer<uint8_t> work(select_workspace_bytes<S>(s, pool.threads()));
  const Buffer<S> z(logits), b(bias);
  select<S>(s, z.data(), bias.empty() ? nullptr : b.data(), positions.empty() ? nullptr : positions.data(),
            out.scores.data(), out.chosen.data(), out.weights.data(), work.data(), pool);
  return out;
}

std::vector<int32_t> ints(const Buffer<int32_t>& b) { return {b.data(), b.data() + b.size()}; }

// Scores, and whether experts are chosen before scoring.
constexpr std::pair<Score, bool> kScores[] = {
    {Score::Softmax, false}, {Score::Sigmoid, false}, {Score::SqrtSoftplus, false}, {Score::Softmax, true}};

template <class S>
class Select : public testing::Test {};
TYPED_TEST_SUITE(Select, StatTypes);

// Rows of given choices take them, from their columns and in their order; those whose first one is 0 choose
// by themselves. Weights are those of a router that chose the same.
TYPED_TEST(Select, RepeatsGivenChoices) {
  using S = TypeParam;
  constexpr int64_t kRows = 23, kExperts = 8, kK = 2, kColumns = 6, kColumn = 4;
  for (const auto& [score, top_k_first] : kScores) {
    const SelectShape plain{.rows = kRows,
                            .experts = kExperts,
                            .k = kK,
                            .score = score,
                            .top_k_first = top_k_first,
                            .normalise = true,
                            .scale = 1.5};
    SelectShape replays = plain;
    replays.route_columns = kColumns, replays.route_column = kColumn;
    const auto logits = random_values<S>(kRows * kExperts, 5), bias = random_values<S>(kExperts, 6, 0.3);
    std::vector<int32_t> routes(static_cast<size_t>(kRows * kColumns), 99);  // 99: of other routers
    for (int64_t r = 0; r < kRows; ++r) {
      const auto at = static_cast<size_t>(r * kColumns + kColumn);
      routes[at] = r % 3 == 0 ? 0 : static_cast<int32_t>(r * 5 % kExperts) + 1;
      routes[at + 1] = r % 3 == 0 ? 0 : static_cast<int32_t>((r * 5 + 3) % kExperts) + 1;
    }
    run_everywhere([&](ThreadPool& pool) {
      const Result<S> alone = run_select<S>(plain, logits, bias, {}, pool),
                      got = run_select<S>(replays, logits, bias, routes, pool);
      for (int64_t r = 0; r < kRows; ++r) {
        double total = 0;
        for (int64_t j = 0; j < kK; ++j) {
          const int32_t given = routes[static_cast<size_t>(r * kColumns + kColumn + j)];
          const int32_t e = got.chosen.data()[r * kK + j];
          EXPECT_EQ(e, given == 0 ? alone.chosen.data()[r * kK + j] : given - 1) << r;
          const auto z = static_cast<double>(S(logits[static_cast<size_t>(r * kExperts + e)]));
          total += score == Score::Softmax   ? std::exp(z)
                   : score == Score::Sigmoid ? 1 / (1 + std::exp(-z))
                                             : std::sqrt(std::log1p(std::exp(z)));
        }
        for (int64_t j = 0; j < kK; ++j) {
          const auto z = static_cast<double>(
              S(logits[static_cast<size_t>(r * kExperts + got.chosen.data()[r * kK + j])]));
          const double raw = score == Score::Softmax   ? std::exp(z)
                             : score == Score::Sigmoid ? 1 / (1 + std::exp(-z))
                                                       : std::sqrt(std::log1p(std::exp(z)));
          EXPECT_NEAR(static_cast<double>(got.weights.data()[r * kK + j]), 1.5 * raw / total, 40 * unit<S>());
        }
      }
      EXPECT_EQ(bytes_of(got.scores), bytes_of(alone.scores));
      return bytes_of(got.scores, got.chosen, got.weights);
    });
  }
}

TYPED_TEST(Select, MatchesReference) {
  using S = TypeParam;
  int cases = 0;
  for (const auto& [experts, k] : {std::pair<int64_t, int64_t>{4, 1}, {8, 2}, {8, 8}, {256, 8}})
    for (const auto& [score, top_k_first] : kScores)
      for (const bool normalise : {false, true})
        for (const bool biased : {false, true})
          for (const int64_t groups : {1, 4})
            for (const bool forced : {false, true}) {
              const int64_t kept = groups == 1 || k == experts ? groups : 2;
              const SelectShape s{.rows = 37,
                                  .experts = experts,
                                  .k = k,
                                  .score = score,
                                  .top_k_first = top_k_first,
                                  .normalise = normalise,
                                  .scale = 2.5,
                                  .groups = groups,
                                  .groups_kept = kept};
              SCOPED_TRACE(testing::Message()
                           << experts << " experts, k " << k << ", score " << static_cast<int>(score)
                           << ", top_k_first " << top_k_first << ", normalise " << normalise << ", biased "
                           << biased << ", groups " << groups << ", forced " << forced);
              const auto logits = random_values<S>(s.rows * experts, 5);
              const auto bias = biased ? random_values<S>(experts, 6, 0.3) : std::vector<double>();
              std::vector<int32_t> positions(forced ? static_cast<size_t>(s.rows) : 0);
              for (size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<int32_t>(i * 5 % 31);
              const Selected want = reference(s, logits, bias, positions);
              run_everywhere([&](ThreadPool& pool) {
                const Result<S> got = run_select<S>(s, logits, bias, positions, pool);
                EXPECT_EQ(ints(got.chosen), want.chosen);
                const auto slack = [&](int64_t) {
                  return 2.5 * static_cast<double>(experts + 8) * unit<S>();
                };
                expect_near(got.scores, want.scores, slack, "scores");
                expect_near(got.weights, want.weights, slack, "weights");
                return bytes_of(got.scores, got.chosen, got.weights);
              });
              ++cases;
            }
  EXPECT_EQ(cases, 4 * 4 * 2 * 2 * 2 * 2);
}

TYPED_TEST(Select, TiesGoToTheLowerIndex) {
  using S = TypeParam;
  ThreadPool pool(1);
  const std::vector<double> logits = {0, 1, 1, 0, 1, 0, 0, 0};
  for (const bool top_k_first : {false, true}) {
    SelectShape s{.rows = 1, .experts = 8, .k = 4, .top_k_first = top_k_first};
    EXPECT_EQ(ints(run_select<S>(s, logits, {}, {}, pool).chosen), (std::vector<int32_t>{1, 2, 4, 0}));
    s.groups = 4;  // groups {0, 1} and {2, 3} tie with {4, 5}: their best is 1
    s.groups_kept = 2;
    EXPECT_EQ(ints(run_select<S>(s, logits, {}, {}, pool).chosen), (std::vector<int32_t>{1, 2, 0, 3}));
  }
}

// With a bias a group is ranked by its two best experts, without one by its best.
TYPED_TEST(Select, GroupsByTheirTwoBestOnlyWithABias) {
  using S = TypeParam;
  ThreadPool pool(1);
  const std::vector<double> logits = {3, -3, 2, 2};
  const SelectShape s{
      .rows = 1, .experts = 4, .k = 2, .score = Score::Sigmoid, .groups = 2, .groups_kept = 1};
  EXPECT_EQ(ints(run_select<S>(s, logits, {}, {}, pool).chosen), (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(ints(run_select<S>(s, logits, {0, 0, 0, 0}, {}, pool).chosen), (std::vector<int32_t>{2, 3}));
}

// The bias affects the choice, never the weights.
TYPED_TEST(Select, BiasIsNotInTheWeights) {
  using S = TypeParam;
  ThreadPool pool(1);
  const SelectShape s{.rows = 1, .experts = 3, .k = 1, .score = Score::Sigmoid};
  const Result<S> got = run_select<S>(s, {1, 0, -1}, {0, 0, 1}, {}, pool);
  EXPECT_EQ(got.chosen.data()[0], 2);
  EXPECT_NEAR(got.weights[0], 1 / (1 + std::exp(1.0)), 4 * unit<S>());
}

TYPED_TEST(Select, ChoicesAreDistinctForAnyLogits) {
  using S = TypeParam;
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  ThreadPool pool(1);
  for (const std::vector<double>& z : {std::vector<double>{nan, nan, nan, nan},
                                       {1, nan, 2, nan},
                                       {nan, 1, 2, 3},
                                       {inf, inf, 0, 0},
                                       {-inf, -inf, -inf, 1},
                                       {-2e4, -2e4, -2e4, -2e4}})
    for (const Score score : {Score::Softmax, Score::Sigmoid, Score::SqrtSoftplus})
      for (const int64_t groups : {1, 2}) {
        const SelectShape s{
            .rows = 1, .experts = 4, .k = 2, .score = score, .groups = groups, .groups_kept = 1};
        const std::vector<int32_t> chosen = ints(run_select<S>(s, z, {}, {}, pool).chosen);
        for (const int32_t c : chosen) EXPECT_TRUE(c >= 0 && c < 4) << c;
        EXPECT_NE(chosen[0], chosen[1]);
      }
}

TYPED_TEST(Select, VanishingScoresGiveZeros) {
  using S = TypeParam;
  ThreadPool pool(1);
  for (const Score score : {Score::Sigmoid, Score::SqrtSoftplus}) {
    const SelectShape s{.rows = 1, .experts = 4, .k = 2, .score = score, .normalise = true};
    const std::vector<double> logits = {-2e4, -2e4, -2e4, -2e4};
    const Result<S> got = run_select<S>(s, logits, {}, {}, pool);
    for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(got.scores[i], 0);
    for (int64_t i = 0; i < 2; ++i) EXPECT_EQ(got.weights[i], 0);
    const Buffer<S> z(logits), dscores(std::vector<double>(4, 1.0));
    Buffer<S> dlogits(std::vector<double>(4, 7.0));
    Buffer<uint8_t> work(select_dx_workspace_bytes<S>(s, 1));
    select_dx<S>(s, z.data(), got.chosen.data(), nullptr, dscores.data(), dlogits.data(), work.data(), pool);
    for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(dlogits[i], 0);
  }
}

// Far from zero sqrt(softplus(x)) is sqrt(x) above and exp(x / 2) below, without overflow; so is its slope.
TYPED_TEST(Select, SqrtSoftplusOfLargeLogits) {
  using S = TypeParam;
  ThreadPool pool(1);
  const SelectShape s{.rows = 1, .experts = 4, .k = 4, .score = Score::SqrtSoftplus};
  const std::vector<double> logits = {1e4, 100, -40, -60};
  const Result<S> got = run_select<S>(s, logits, {}, {}, pool);
  const double want[] = {100, 10, std::exp(-20.0), std::exp(-30.0)},
               slope[] = {1 / 200.0, 1 / 20.0, std::exp(-20.0) / 2, std::exp(-30.0) / 2};
  const Buffer<S> z(logits), dweights(std::vector<double>(4, 1.0));
  Buffer<S> dlogits(4);
  Buffer<uint8_t> work(select_dx_workspace_bytes<S>(s, 1));
  select_dx<S>(s, z.data(), got.chosen.data(), dweights.data(), nullptr, dlogits.data(), work.data(), pool);
  for (int64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(got.chosen.data()[i], i);
    EXPECT_NEAR(got.weights[i], want[i], 64 * unit<S>() * want[i]);
    EXPECT_NEAR(dlogits[i], slope[i], 64 * unit<S>() * slope[i]);
  }
}

// select_dx against finite differences of the reference's weights and scores, for a fixed choice.
TYPED_TEST(Select, GradientMatchesDifferences) {
  using S = TypeParam;
  for (const auto& [score, top_k_first] : kScores)
    for (const bool normalise : {false, true})
      for (const int which : {1, 2, 3}) {  // bit 0: gradient of the weights, bit 1: of the scores
        SCOPED_TRACE(testing::Message()
                     << "score " << static_cast<int>(score) << ", top_k_first " << top_k_first
                     << ", normalise " << normalise << ", gradients " << which);
        const SelectShape s{.rows = 9,
                            .experts = 12,
                            .k = 3,
                            .score = score,
                            .top_k_first = top_k_first,
                            .normalise = normalise,
                            .scale = 1.5};
        auto logits = random_values<S>(s.rows * s.experts, 7);
        const auto dw = random_values<S>(s.rows * s.k, 8), ds = random_values<S>(s.rows * s.experts, 9);
        const Selected at = reference(s, logits, {}, {});
        std::vector<double> want;
        for (int64_t i = 0; i < s.rows * s.experts; ++i)
          want.push_back(difference(logits, i, [&] {
            const Selected v = reference(s, logits, {}, {});
            double sum = 0;
            for (size_t j = 0; which & 1 && j < dw.size(); ++j) sum += dw[j] * v.weights[j];
            for (size_t j = 0; which & 2 && j < ds.size(); ++j) sum += ds[j] * v.scores[j];
            return sum;
          }));
        const Buffer<S> z(logits), gw(dw), gs(ds);
        run_everywhere([&](ThreadPool& pool) {
          Buffer<S> got(s.rows * s.experts);
          Buffer<uint8_t> work(select_dx_workspace_bytes<S>(s, pool.threads()));
          select_dx<S>(s, z.data(), at.chosen.data(), which & 1 ? gw.data() : nullptr,
                       which & 2 ? gs.data() : nullptr, got.data(), work.data(), pool);
          expect_near(
              got, want, [](int64_t) { return std::is_same_v<S, double> ? 1e-8 : 2e-5; }, "dlogits");
          return bytes_of(got);
        });
      }
}

struct Choice {
  int64_t sequence, position, choice;
  double weight;
  int32_t expert;
  size_t at;  // index in the operands
};

// By definition: all pairs of a group and an expert, sorted; the first `capacity` are kept.
std::vector<int32_t> reference(const LimitShape& s, const std::vector<int32_t>& chosen,
                               const std::vector<double>& weights) {
  // Where each row belongs, by the definition in base/row_order.h.
  std::vector<std::pair<int64_t, int64_t>> rows;  // (sequence, position)
  const base::RowOrder& o = s.order;
  if (o.ranks == 1) {
    for (int64_t q = 0; q < o.sequences; ++q)
      for (int64_t p = 0; p < o.seq_len; ++p) rows.push_back({q, p});
  } else {
    const int64_t chunk = o.seq_len / (2 * o.ranks);
    for (int64_t c = 0; c < o.ranks; ++c)
      for (int64_t q = 0; q < o.sequences; ++q)
        for (const int64_t piece : {c, 2 * o.ranks - 1 - c})
          for (int64_t p = 0; p < chunk; ++p) rows.push_back({q, piece * chunk + p});
  }
  std::vector<Choice> all;
  for (size_t r = 0; r < rows.size(); ++r)
    for (int64_t j = 0; j < s.k; ++j) {
      const size_t at = r * static_cast<size_t>(s.k) + static_cast<size_t>(j);
      all.push_back({rows[r].first, rows[r].second, j, weights[at], chosen[at], at});
    }
  std::vector<int32_t> kept(chosen.size(), -1);
  for (int64_t g = 0; g < o.sequences / s.group; ++g)
    for (int32_t e = 0; e < 64; ++e) {
      std::vector<Choice> mine;
      for (const Choice& c : all)
        if (c.sequence / s.group == g && c.expert == e) mine.push_back(c);
      std::sort(mine.begin(), mine.end(), [&](const Choice& a, const Choice& b) {
        if (s.by_weight && a.weight != b.weight) return a.weight > b.weight;
        return std::tie(a.sequence, a.position, a.choice) < std::tie(b.sequence, b.position, b.choice);
      });
      for (size_t i = 0; i < mine.size() && static_cast<int64_t>(i) < s.capacity; ++i) kept[mine[i].at] = e;
    }
  return kept;
}

template <class S>
std::vector<int32_t> run_limit(const LimitShape& s, const std::vector<int32_t>& chosen,
                               const std::vector<double>& weights, ThreadPool& pool) {
  Buffer<int32_t> kept(static_cast<int64_t>(chosen.size()));
  Buffer<uint8_t> work(limit_workspace_bytes(s));
  const Buffer<S> w(weights);
  limit<S>(s, chosen.data(), w.data(), kept.data(), work.data(), pool);
  return ints(kept);
}

template <class S>
class Limit : public testing::Test {};
TYPED_TEST_SUITE(Limit, StatTypes);

TYPED_TEST(Limit, MatchesReference) {
  using S = TypeParam;
  int dropped = 0;
  for (const int64_t cp : {1, 2, 3})
    for (const int64_t group : {1, 2, 4})
      for (const int64_t capacity : {1, 3, 7, 1000})
        for (const bool by_weight : {false, true}) {
          const LimitShape s{.order = {.seq_len = 12, .sequences = 4, .ranks = cp, .first = 0, .count = cp},
                             .k = 2,
                             .group = group,
                             .capacity = capacity,
                             .by_weight = by_weight};
          SCOPED_TRACE(testing::Message() << "cp " << cp << ", group " << group << ", capacity " << capacity
                                          << ", by weight " << by_weight);
          const auto noise = random_values<double>(48 * 2, 11);
          std::vector<int32_t> chosen;
          std::vector<double> weights;
          for (size_t i = 0; i < noise.size(); ++i) {
            chosen.push_back(static_cast<int32_t>(i % 2 == 0 ? i / 2 % 3 : 3 + i / 2 % 2));
            weights.push_back(std::round(noise[i] * 2) / 4);  // few values: many ties, -0 among them
          }
          const auto want = reference(s, chosen, weights);
          dropped += static_cast<int>(std::count(want.begin(), want.end(), -1));
          run_everywhere([&](ThreadPool& pool) {
            EXPECT_EQ(run_limit<S>(s, chosen, weights, pool), want);
            return std::vector<uint8_t>();
          });
        }
  EXPECT_GT(dropped, 1000);
}

// Small enough to check by hand: two sequences of two tokens, one choice, expert 0 takes two.
TYPED_TEST(Limit, ExactSets) {
  using S = TypeParam;
  ThreadPool pool(2);
  LimitShape s{.order = {.seq_len = 2, .sequences = 2}, .k = 1, .group = 2, .capacity = 2};
  using V = std::vector<int32_t>;
  EXPECT_EQ(run_limit<S>(s, {0, 0, 0, 1}, {0.1, 0.2, 0.3, 0.4}, pool), (V{0, 0, -1, 1}));
  s.by_weight = true;
  EXPECT_EQ(run_limit<S>(s, {0, 0, 0, 1}, {0.1, 0.2, 0.3, 0.4}, pool), (V{-1, 0, 0, 1}));
  EXPECT_EQ(run_limit<S>(s, {0, 0, 0, 0}, {0.5, 0.5, 0.5, 0.7}, pool), (V{0, -1, -1, 0}));
  s.group = 1;
  EXPECT_EQ(run_limit<S>(s, {0, 0, 0, 1}, {0.1, 0.2, 0.3, 0.4}, pool), (V{0, 0, 0, 1}));
}

// Zig-zag over two ranks: a sequence of four is stored as positions 0 3 | 1 2.
TYPED_TEST(Limit, FirstComeGoesByPositionNotByRow) {
  using S = TypeParam;
  ThreadPool pool(1);
  const LimitShape s{.order = {.seq_len = 4, .sequences = 1, .ranks = 2, .first = 0, .count = 2},
                     .k = 1,
                     .group = 1,
                     .capacity = 2};
  EXPECT_EQ(run_limit<S>(s, {5, 5, 5, 5}, {1, 1, 1, 1}, pool), (std::vector<int32_t>{5, -1, 5, -1}));
}

// Tokens with equal context have equal weights up to rounding, which differs from layout to layout.
TYPED_TEST(Limit, RoundingDoesNotDecideWhatIsDropped) {
  using S = TypeParam;
  ThreadPool pool(1);
  const LimitShape s{
      .order = {.seq_len = 4, .sequences = 1}, .k = 1, .group = 1, .capacity = 2, .by_weight = true};
  const double u = std::numeric_limits<S>::epsilon();
  for (const double w : {1.0, 0.5, 0.3, 1e-3})
    EXPECT_EQ(run_limit<S>(s, {0, 0, 0, 0}, {w * (1 - u), w, w * (1 + 2 * u), w * (1 + u)}, pool),
              (std::vector<int32_t>{0, 0, -1, -1}))
        << w;
  // Differences larger than rounding are distinguished.
  const double d = std::ldexp(1.0, 1 - kTieBits<S>);
  EXPECT_EQ(run_limit<S>(s, {0, 0, 0, 0}, {0.5, 0.5 * (1 + d), 0.5, 0.5 * (1 + d)}, pool),
            (std::vector<int32_t>{-1, 0, -1, 0}));
}

TYPED_TEST(Limit, NanWeightsAreHarmless) {
  using S = TypeParam;
  ThreadPool pool(1);
  const LimitShape s{
      .order = {.seq_len = 64, .sequences = 1}, .k = 1, .group = 1, .capacity = 5, .by_weight = true};
  std::vector<double> weights(64, std::nan(""));
  for (size_t i = 0; i < 64; i += 3) weights[i] = static_cast<double>(i);
  const auto kept = run_limit<S>(s, std::vector<int32_t>(64, 2), weights, pool);
  EXPECT_EQ(std::count(kept.begin(), kept.end(), 2), 5);
}

// By the definition; what belongs to a row is the same wherever the row is.
TEST(RandomWeights, FollowFromSamplePositionAndChoice) {
  const int64_t rows = 700, k = 6;
  const uint64_t key = base::stream_key(3, "rows");
  std::vector<int32_t> samples, positions;
  for (int64_t r = 0; r < rows; ++r) {
    samples.push_back(static_cast<int32_t>(90000 + r / 100));
    positions.push_back(static_cast<int32_t>(r % 100));
  }
  std::vector<double> want;
  double sum = 0;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t j = 0; j < k; ++j) {
      const uint64_t low = static_cast<uint64_t>(j / 4) | static_cast<uint64_t>(positions[r]) << 32;
      const uint32_t word = base::philox(key, low, static_cast<uint64_t>(samples[r]))[j % 4];
      want.push_back((static_cast<double>(word) + 0.5) / 4294967296.0);
      sum += want.back();
    }
  // Four standard deviations of the mean of uniform numbers.
  EXPECT_NEAR(sum / (rows * k), 0.5, 4 * std::sqrt(1.0 / 12 / (rows * k)));
  run_everywhere([&](ThreadPool& pool) {
    Buffer<double> got(rows * k);
    random_weights(samples.data(), positions.data(), key, got.data(), rows, k, pool);
    for (int64_t i = 0; i < rows * k; ++i) EXPECT_EQ(got[i], want[static_cast<size_t>(i)]);
    Buffer<double> part(3 * k);
    random_weights(samples.data() + 50, positions.data() + 50, key, part.data(), 3, k, pool);
    for (int64_t i = 0; i < 3 * k; ++i) EXPECT_EQ(part[i], got[50 * k + i]);
    return bytes_of(got);
  });
}

}  // namespace
}  // namespace quintet::kernels::cpu::test

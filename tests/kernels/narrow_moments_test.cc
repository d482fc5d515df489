// Moments in fewer bits: stochastic rounding that belongs to elements, and 8-bit codes.
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/split_float.h"
#include "kernels/cpu/optimizer/optimizer.h"
#include "kernels/dynamic_map.h"
#include "kernels/stochastic_rounding.h"
#include "kernels/support.h"
#include "support/folders.h"

namespace quintet::kernels::cpu::test {
namespace {

TEST(StochasticRounding, IsUnbiasedAndKeepsWhatBf16Holds) {
  for (const float x : {1.00390625f * 1.25f, -3.1f, 1e-30f, 0.1f}) {
    double sum = 0;
    constexpr int kDraws = 1 << 16;
    const float low = round_stochastically(x, 0), high = round_stochastically(x, 0xffff);
    for (uint32_t r = 0; r < kDraws; ++r) {
      const float y = round_stochastically(x, r);
      EXPECT_TRUE(y == low || y == high);
      EXPECT_EQ(static_cast<float>(Bf16(y)), y);
      EXPECT_EQ(round_stochastically(y, r), y) << "a number that bf16 holds has moved";
      // The same grid in double.
      EXPECT_EQ(round_stochastically(double{x}, r), double{y});
      sum += y;
    }
    EXPECT_NEAR(sum / kDraws, x, 1e-6 * std::abs(x));
  }
  EXPECT_EQ(round_stochastically(HUGE_VALF, 7), HUGE_VALF);
  EXPECT_EQ(round_stochastically(-HUGE_VAL, 7), -HUGE_VAL);
  EXPECT_TRUE(std::isnan(round_stochastically(NAN, 0xffff)));
}

// The parts of a matrix that ranks hold are rounded as the whole one is.
template <class M, class V>
void check_parts() {
  constexpr int64_t kRows = 6, kColumns = 21, kParts = 3, kWidth = kColumns / kParts,
                    kCount = kRows * kColumns;
  const double lr = 0.01;
  const int64_t step = 3;
  const auto p0 = random_values<M>(kCount, 1), g0 = random_values<M>(kCount, 2),
             m0 = random_values<V>(kCount, 3);
  auto v0 = random_values<V>(kCount, 4);
  for (double& v : v0) v = std::abs(v);
  const Origin whole{.key = 99, .first = 0, .run = kCount, .stride = kCount, .base = 0};
  run_everywhere([&](ThreadPool& pool) {
    const auto update = [&](Buffer<M>& p, Buffer<V>& m, Buffer<V>& v, const Buffer<M>& g,
                            const Origin& origin, int64_t first, int64_t count) {
      Rounding rounding{origin, step};
      rounding.origin.first += first;
      const AdamWScalars k{.lr = &lr, .step = &step, .beta2 = 0.95, .rounding = &rounding};
      adamw<M, V, M, M>(p.data() + first, m.data() + first, v.data() + first, g.data() + first, nullptr,
                        count, k, pool);
    };
    Buffer<M> p(p0), g(g0);
    Buffer<V> m(m0), v(v0);
    update(p, m, v, g, whole, 0, kCount);
    // In flat ranges.
    Buffer<M> q(p0);
    Buffer<V> m2(m0), v2(v0);
    for (const auto& [first, count] : {std::pair{0, 5}, std::pair{5, 64}, std::pair{69, 57}})
      update(q, m2, v2, g, whole, first, count);
    EXPECT_TRUE(bytes_of(p, m, v) == bytes_of(q, m2, v2));
    // Cut along rows.
    for (int64_t part = 0; part < kParts; ++part) {
      const auto cut = [&](const std::vector<double>& from) {
        std::vector<double> some;
        for (int64_t r = 0; r < kRows; ++r)
          for (int64_t c = 0; c < kWidth; ++c)
            some.push_back(from[static_cast<size_t>(r * kColumns + part * kWidth + c)]);
        return some;
      };
      Buffer<M> own(cut(p0)), own_g(cut(g0));
      Buffer<V> own_m(cut(m0)), own_v(cut(v0));
      update(own, own_m, own_v, own_g,
             {.key = 99, .first = 0, .run = kWidth, .stride = kColumns, .base = part * kWidth}, 0,
             kRows * kWidth);
      for (int64_t r = 0; r < kRows; ++r)
        for (int64_t c = 0; c < kWidth; ++c) {
          const int64_t at = r * kColumns + part * kWidth + c;
          EXPECT_EQ(own_m[r * kWidth + c], m[at]) << at;
          EXPECT_EQ(own_v[r * kWidth + c], v[at]) << at;
        }
    }
    return bytes_of(m, v);
  });
}
TEST(StochasticRounding, PartsOfAParameterRoundAsTheWhole) {
  check_parts<float, Bf16>();
  check_parts<double, double>();
}

// LAMB and LARS store moments that are rounded by the same numbers, and move by those before rounding.
TEST(StochasticRounding, OfLambAndLarsMovesByWhatWasNotRounded) {
  constexpr int64_t kCount = 70;
  const double lr = 0.01;
  const int64_t step = 2;
  const Rounding rounding{{.key = 7, .first = 0, .run = kCount, .stride = kCount, .base = 0}, step};
  const auto p0 = random_values<float>(kCount, 1), g0 = random_values<float>(kCount, 2),
             m0 = random_values<Bf16>(kCount, 3);
  auto v0 = random_values<Bf16>(kCount, 4);
  for (double& v : v0) v = std::abs(v);
  run_everywhere([&](ThreadPool& pool) {
    const Buffer<float> g(g0);
    Buffer<float> p(p0), exact_p(p0), exact_m(m0), exact_v(v0);
    Buffer<Bf16> m(m0), v(v0);
    LambScalars lamb_scalars{.lr = &lr, .step = &step};
    lamb<float, float, float, float>(exact_p.data(), exact_m.data(), exact_v.data(), g.data(), nullptr,
                                     kCount, lamb_scalars, pool);
    lamb_scalars.rounding = &rounding;
    lamb<float, Bf16, float, float>(p.data(), m.data(), v.data(), g.data(), nullptr, kCount, lamb_scalars,
                                    pool);
    EXPECT_TRUE(bytes_of(p) == bytes_of(exact_p));
    Buffer<float> q(p0), exact_q(p0), exact_u(m0);
    Buffer<Bf16> u(m0);
    LarsScalars lars_scalars{.lr = &lr, .momentum = 0.9};
    lars<float, float, float, float>(exact_q.data(), exact_u.data(), g.data(), nullptr, kCount, lars_scalars,
                                     pool);
    lars_scalars.rounding = &rounding;
    lars<float, Bf16, float, float>(q.data(), u.data(), g.data(), nullptr, kCount, lars_scalars, pool);
    EXPECT_TRUE(bytes_of(q) == bytes_of(exact_q));
    for (int64_t i = 0; i < kCount; ++i) {
      const uint32_t word = random_word(7, i, step);
      const auto rounded = [](double x, uint32_t random) {
        return double{round_stochastically(static_cast<float>(x), random)};
      };
      EXPECT_EQ(m[i], rounded(exact_m[i], word & 0xffffu)) << i;
      EXPECT_EQ(v[i], rounded(exact_v[i], word >> 16)) << i;
      EXPECT_EQ(u[i], rounded(exact_u[i], word & 0xffffu)) << i;
    }
    return bytes_of(m, v, u);
  });
}

TEST(DynamicMap, TheNearestCodeIsFound) {
  const auto check = [](const auto& map, auto number) {
    using Number = decltype(number);
    const auto nearest = [&](double x) {
      int best = 0;
      for (int c = 1; c < 256; ++c) {
        const double now = std::abs(map.value[c] - x), before = std::abs(map.value[best] - x);
        if (now < before || (now == before && std::abs(map.value[c]) < std::abs(map.value[best]))) best = c;
      }
      return best;
    };
    for (int c = 0; c < 256; ++c) {
      EXPECT_EQ(nearest_code(map, Number{map.value[c]}), c);
      if (c == 255) break;
      EXPECT_LT(map.value[c], map.value[c + 1]);
      const auto middle = static_cast<Number>((double{map.value[c]} + double{map.value[c + 1]}) / 2);
      for (const Number x : {middle, std::nextafter(middle, Number(2)), std::nextafter(middle, Number(-2))})
        EXPECT_EQ(nearest_code(map, x), nearest(x)) << x;
    }
    for (int i = 0; i < 20000; ++i) {
      const auto x = static_cast<Number>(std::pow(10.0, -i / 2500.0));
      ASSERT_EQ(nearest_code(map, x), nearest(x)) << x;
      if (map.value[0] < 0) {
        ASSERT_EQ(nearest_code(map, -x), nearest(-x)) << -x;
      }
    }
  };
  check(kSignedMap, float{});
  check(kSignedMap, double{});
  check(kUnsignedMap, float{});
  check(kUnsignedMap, double{});
}

// tests/golden/make_adamw8bit.py
TEST(AdamW8bit, MatchesTheReference) {
  constexpr int64_t kCount = 300, kBlock = 64, kBlocks = 5;
  std::ifstream file(quintet::test::source_dir() + "/tests/golden/adamw8bit.json");
  const nlohmann::json golden = nlohmann::json::parse(file);
  ThreadPool pool(1);
  std::vector<double> p(kCount), g(kCount), m_scale(kBlocks), v_scale(kBlocks);
  std::vector<uint8_t> m(kCount), v(kCount);
  for (int64_t i = 0; i < kCount; ++i)
    p[static_cast<size_t>(i)] = static_cast<double>((i * 7919) % 2001 - 1000) / 1000;
  const double lr = 0.01, clip = 0.5;
  const int32_t ok = 1, refuse = 0;
  int64_t step = 1;
  AdamWScalars k{&lr, &step, &clip, &ok, 0.9, 0.95, 1e-8, 0.1};
  const Codes<double> codes{m.data(), v.data(), m_scale.data(), v_scale.data(), kBlock};
  for (; step <= 5; ++step) {
    for (int64_t i = 0; i < kCount; ++i)
      g[static_cast<size_t>(i)] = static_cast<double>((i * 104729 + step * 15485863) % 4001 - 2000) / 2000 *
                                  std::pow(10.0, -static_cast<double>(i % 5));
    adamw8bit<double, double, double>(p.data(), codes, g.data(), nullptr, kCount, k, pool);
  }
  for (size_t i = 0; i < kCount; ++i) {
    EXPECT_NEAR(p[i], golden["p"][i].get<double>(), 1e-12) << i;
    EXPECT_EQ(m[i], golden["m"][i].get<int>()) << i;
    EXPECT_EQ(v[i], golden["v"][i].get<int>()) << i;
  }
  for (size_t b = 0; b < kBlocks; ++b) {
    EXPECT_NEAR(m_scale[b], golden["m_scale"][b].get<double>(), 1e-14);
    EXPECT_NEAR(v_scale[b], golden["v_scale"][b].get<double>(), 1e-14);
  }
  const auto before = std::tuple(p, m, v, m_scale, v_scale);
  k.ok = &refuse;
  adamw8bit<double, double, double>(p.data(), codes, g.data(), nullptr, kCount, k, pool);
  EXPECT_EQ(before, std::tuple(p, m, v, m_scale, v_scale)) << "a refused step changed something";
}

// A block's scale is its largest magnitude, also where the block is cut short, and codes times scale are the
// moments to half the distance between codes.
template <class P>
void check_scales() {
  constexpr int64_t kCount = 1000, kBlock = 64, kBlocks = (kCount + kBlock - 1) / kBlock;
  ThreadPool pool(2);
  const auto g0 = random_values<P>(kCount, 11);
  const Buffer<P> g(g0);
  Buffer<P> p(random_values<P>(kCount, 12));
  std::vector<P> m_scale(kBlocks), v_scale(kBlocks);
  std::vector<uint8_t> m(kCount), v(kCount);
  const double lr = 0.01;
  const int64_t step = 1;
  const AdamWScalars k{.lr = &lr, .step = &step, .beta1 = 0.9, .beta2 = 0.95};
  adamw8bit<P, P, P>(p.data(), {m.data(), v.data(), m_scale.data(), v_scale.data(), kBlock}, g.data(),
                     nullptr, kCount, k, pool);
  for (int64_t b = 0; b < kBlocks; ++b) {
    double largest = 0;
    const int64_t end = std::min(kCount, (b + 1) * kBlock);
    for (int64_t i = b * kBlock; i < end; ++i)
      largest = std::max(largest, std::abs(g0[static_cast<size_t>(i)]));
    const auto at = static_cast<size_t>(b);
    EXPECT_NEAR(double{m_scale[at]}, 0.1 * largest, 1e-6 * largest) << b;
    EXPECT_NEAR(double{v_scale[at]}, 0.05 * largest * largest, 1e-6 * largest * largest) << b;
    for (auto i = static_cast<size_t>(b * kBlock); i < static_cast<size_t>(end); ++i) {
      EXPECT_NEAR(double{kSignedMap.value[m[i]]} * m_scale[at], 0.1 * g0[i], 0.0075 * m_scale[at]) << i;
      EXPECT_NEAR(double{kUnsignedMap.value[v[i]]} * v_scale[at], 0.05 * g0[i] * g0[i], 0.0038 * v_scale[at])
          << i;
    }
  }
}
TEST(AdamW8bit, ScalesAreTheLargestMagnitudesOfTheirBlocks) {
  check_scales<float>();
  check_scales<double>();
}

// A split master is the f32 master bit by bit, on any number of threads.
TEST(AdamW8bit, SplitMastersAndThreadsChangeNoBit) {
  constexpr int64_t kCount = 5000, kBlock = 256, kBlocks = (kCount + kBlock - 1) / kBlock;
  const auto p0 = random_values<float>(kCount, 1);
  run_everywhere([&](ThreadPool& pool) {
    Buffer<float> p(p0), m_scale(std::vector<double>(kBlocks, 0.0)),
        v_scale(std::vector<double>(kBlocks, 0.0));
    std::vector<uint8_t> m(kCount), v(kCount), m2(kCount), v2(kCount);
    std::vector<float> ms(kBlocks), vs(kBlocks);
    std::vector<Bf16> weight(kCount);
    std::vector<int16_t> remainder(kCount);
    for (size_t i = 0; i < kCount; ++i) {
      const base::SplitFloat s = base::split_float(static_cast<float>(p0[i]));
      weight[i] = s.high;
      remainder[i] = s.low;
    }
    const double lr = 0.01;
    int64_t step = 1;
    const AdamWScalars k{.lr = &lr, .step = &step, .beta2 = 0.95, .weight_decay = 0.1};
    for (; step <= 3; ++step) {
      const Buffer<float> g(random_values<float>(kCount, 5 + static_cast<uint64_t>(step)));
      adamw8bit<float, float, float>(p.data(), {m.data(), v.data(), m_scale.data(), v_scale.data(), kBlock},
                                     g.data(), nullptr, kCount, k, pool);
      adamw8bit_split<float>(weight.data(), remainder.data(),
                             {m2.data(), v2.data(), ms.data(), vs.data(), kBlock}, g.data(), kCount, k, pool);
    }
    EXPECT_EQ(m, m2);
    EXPECT_EQ(v, v2);
    for (size_t b = 0; b < kBlocks; ++b) {
      EXPECT_EQ(m_scale.data()[b], ms[b]) << b;
      EXPECT_EQ(v_scale.data()[b], vs[b]) << b;
    }
    for (size_t i = 0; i < kCount; ++i)
      EXPECT_EQ(base::join_float(weight[i], remainder[i]), p.data()[i]) << i;
    return bytes_of(p, m_scale, v_scale);
  });
}

}  // namespace
}  // namespace quintet::kernels::cpu::test

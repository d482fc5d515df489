// Moments in fewer bits: stochastic rounding by random numbers that belong to elements.
#include "kernels/cpu/optimizer/optimizer.h"
#include "kernels/stochastic_rounding.h"
#include "kernels/support.h"

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

}  // namespace
}  // namespace quintet::kernels::cpu::test

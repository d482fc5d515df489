#include "kernels/cpu/elementwise/rope.h"

#include "kernels/support.h"

namespace quintet::kernels::cpu::test {
namespace {

template <class T>
class Rope : public testing::Test {};
TYPED_TEST_SUITE(Rope, AllTypes);

TYPED_TEST(Rope, MatchesReferenceAndInverts) {
  using T = TypeParam;
  for (const auto& [tokens, heads, dim] :
       {std::tuple<int64_t, int64_t, int64_t>{1, 1, 2}, {5, 3, 14}, {9, 2, 64}, {300, 3, 128}, {2, 1, 322}}) {
    SCOPED_TRACE(testing::Message() << tokens << " x " << heads << " x " << dim);
    const int64_t stride = heads * dim + 5, half = dim / 2;
    const double scale = 1.25;
    const auto x = random_values<T>(tokens * stride, 21);
    std::vector<double> frequencies(half);
    for (int64_t d = 0; d < half; ++d) frequencies[d] = std::pow(10000.0, -2.0 * d / dim);
    std::vector<int32_t> positions(tokens);
    for (int64_t t = 0; t < tokens; ++t) positions[t] = static_cast<int32_t>(t % 7 == 6 ? 999983 : t * t);
    for (bool inverse : {false, true}) {
      std::vector<double> want(tokens * heads * dim);
      for (int64_t t = 0; t < tokens; ++t)
        for (int64_t h = 0; h < heads; ++h)
          for (int64_t d = 0; d < half; ++d) {
            const double angle = positions[t] * frequencies[d] * (inverse ? -1 : 1);
            const double c = std::cos(angle) * scale, s = std::sin(angle) * scale;
            const double a = x[t * stride + h * dim + d], b = x[t * stride + h * dim + half + d];
            want[(t * heads + h) * dim + d] = a * c - b * s;
            want[(t * heads + h) * dim + half + d] = b * c + a * s;
          }
      run_everywhere([&](ThreadPool& pool) {
        const Buffer<T> in(x);
        Buffer<T> y(tokens * heads * dim), alias(x);
        rope<T>(in.data(), stride, positions.data(), frequencies.data(), scale, y.data(), heads * dim, tokens,
                heads, dim, inverse, pool);
        // Cosine, sine, two products and a sum of numbers below about 8.
        expect_near(
            y, want, [&](int64_t) { return 40 * unit<Stat<T>>(); }, "y");
        rope<T>(alias.data(), stride, positions.data(), frequencies.data(), scale, alias.data(), stride,
                tokens, heads, dim, inverse, pool);
        for (int64_t t = 0; t < tokens; ++t) {
          EXPECT_EQ(
              0, std::memcmp(alias.data() + t * stride, y.data() + t * heads * dim, sizeof(T) * heads * dim));
          for (int64_t i = heads * dim; i < stride; ++i) EXPECT_EQ(alias[t * stride + i], x[t * stride + i]);
        }
        return bytes_of(y);
      });
    }
  }
}

TEST(Rope, BackwardIsTheTranspose) {
  const int64_t tokens = 4, heads = 2, dim = 6;
  ThreadPool pool(1);
  const auto x = random_values<double>(tokens * heads * dim, 1),
             g = random_values<double>(tokens * heads * dim, 2);
  const std::vector<double> frequencies = {1.0, 0.1, 0.01};
  const std::vector<int32_t> positions = {0, 3, 1, 100};
  std::vector<double> y(x.size()), dx(x.size());
  rope<double>(x.data(), heads * dim, positions.data(), frequencies.data(), 0.7, y.data(), heads * dim,
               tokens, heads, dim, false, pool);
  rope<double>(g.data(), heads * dim, positions.data(), frequencies.data(), 0.7, dx.data(), heads * dim,
               tokens, heads, dim, true, pool);
  double left = 0, right = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    left += y[i] * g[i];
    right += x[i] * dx[i];
  }
  EXPECT_NEAR(left, right, 1e-13);
}

}  // namespace
}  // namespace quintet::kernels::cpu::test

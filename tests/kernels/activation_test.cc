#include "kernels/cpu/elementwise/activation.h"

#include "kernels/support.h"

namespace quintet::kernels::cpu::test {
namespace {

double sigmoid(double z) { return z >= 0 ? 1 / (1 + std::exp(-z)) : std::exp(z) / (1 + std::exp(z)); }
double silu_value(double z) { return z * sigmoid(z); }
double silu_slope(double z) { return sigmoid(z) * (1 + z * sigmoid(-z)); }
double gelu_inner(double x) { return std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x); }
double gelu_value(double x) { return x * sigmoid(2 * gelu_inner(x)); }
double gelu_slope(double x) {
  const double u = 2 * gelu_inner(x), du = 2 * std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
  return sigmoid(u) + x * sigmoid(u) * sigmoid(-u) * du;
}

template <class T>
class Activation : public testing::Test {};
TYPED_TEST_SUITE(Activation, AllTypes);

TYPED_TEST(Activation, MatchReference) {
  using T = TypeParam;
  // exp's argument carries |u| units of error into the result, followed by a handful of roundings.
  const double u = unit<Stat<T>>();
  for (int64_t n : {1, 7, 65, 9001}) {
    auto x = random_values<T>(n, 31, 4.0);
    const auto dy = random_values<T>(n, 32);
    std::vector<double> s(n), ds(n), g(n), dg(n);
    for (int64_t i = 0; i < n; ++i) {
      s[i] = silu_value(x[i]);
      ds[i] = dy[i] * silu_slope(x[i]);
      g[i] = gelu_value(x[i]);
      dg[i] = dy[i] * gelu_slope(x[i]);
    }
    run_everywhere([&](ThreadPool& pool) {
      const Buffer<T> bx(x), bdy(dy);
      Buffer<T> bs(n), bds(n), bg(n), bdg(bdy.values());
      silu<T>(bx.data(), bs.data(), n, pool);
      silu_backward<T>(bdy.data(), bx.data(), bds.data(), n, pool);
      gelu<T>(bx.data(), bg.data(), n, pool);
      gelu_backward<T>(bdg.data(), bx.data(), bdg.data(), n, pool);
      const auto inner = [&](int64_t i) { return 8 + 4 * std::abs(x[i]) + 8 * std::abs(gelu_inner(x[i])); };
      expect_near(
          bs, s, [&](int64_t i) { return u * inner(i) * std::abs(s[i]) + 1e-44; }, "silu");
      expect_near(
          bds, ds, [&](int64_t i) { return u * inner(i) * std::abs(dy[i]) + 1e-44; }, "dsilu");
      // Once exp underflows, the error is below |x| times the smallest number.
      expect_near(
          bg, g, [&](int64_t i) { return u * inner(i) * std::abs(g[i]) + 1e-36; }, "gelu");
      expect_near(
          bdg, dg, [&](int64_t i) { return u * inner(i) * 4 * std::abs(dy[i]) + 1e-36; }, "dgelu");
      return bytes_of(bs, bds, bg, bdg);
    });
  }
}

TYPED_TEST(Activation, SwigluOnPackedHalves) {
  using T = TypeParam;
  const double u = unit<Stat<T>>();
  for (const auto& [rows, n] : {std::pair<int64_t, int64_t>{1, 1}, {3, 7}, {70, 65}, {9, 2048}}) {
    const auto packed = random_values<T>(rows * 2 * n, 41, 2.0), dy = random_values<T>(rows * n, 42);
    std::vector<double> y(rows * n), dpacked(rows * 2 * n);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t i = 0; i < n; ++i) {
        const double g = packed[r * 2 * n + i], up = packed[r * 2 * n + n + i];
        y[r * n + i] = silu_value(g) * up;
        dpacked[r * 2 * n + i] = dy[r * n + i] * up * silu_slope(g);
        dpacked[r * 2 * n + n + i] = dy[r * n + i] * silu_value(g);
      }
    run_everywhere([&](ThreadPool& pool) {
      Buffer<T> in(packed), out(rows * n), bdy(dy);  // all in place, as planned
      swiglu<T>(in.data(), in.data() + n, 2 * n, out.data(), rows, n, pool);
      swiglu_backward<T>(bdy.data(), in.data(), in.data() + n, 2 * n, in.data(), in.data() + n, bdy.data(),
                         rows, n, pool);
      expect_near(
          out, y, [&](int64_t i) { return 64 * u * std::abs(y[i]); }, "y");
      expect_near(
          in, dpacked, [&](int64_t) { return 64 * u * 64; }, "dgate, dup");
      EXPECT_EQ(bytes_of(bdy), bytes_of(out)) << "the result again";
      return bytes_of(in, out);
    });
  }
}

TEST(ActivationEdges, LargeArgumentsAndNan) {
  ThreadPool pool(1);
  const double inf = std::numeric_limits<double>::infinity();
  for (Isa set : instruction_sets()) {
    limit_isa(set);
    const Buffer<float> x(std::vector<double>{-200, -88, 88, 200, 3e38, std::nan(""), 0, -0.0});
    Buffer<float> y(8), dx(8), dy(std::vector<double>(8, 1.0));
    silu<float>(x.data(), y.data(), 8, pool);
    EXPECT_EQ(std::abs(y[0]), 0);
    EXPECT_NEAR(y[1] / (-88 * std::exp(-88.0)), 1, 1e-5);
    EXPECT_EQ(y[2], 88);
    EXPECT_EQ(y[3], 200);
    EXPECT_EQ(y[4], static_cast<float>(3e38));
    EXPECT_TRUE(std::isnan(y[5]));
    EXPECT_EQ(y[6], 0);
    gelu_backward<float>(dy.data(), x.data(), dx.data(), 8, pool);
    EXPECT_EQ(dx[0], 0);
    EXPECT_EQ(dx[3], 1);
    EXPECT_TRUE(std::isnan(dx[5]));
    EXPECT_EQ(dx[6], 0.5);
    (void)inf;
  }
  limit_isa(Isa::Avx512);
}

TEST(ActivationGradient, MatchesDifferences) {
  ThreadPool pool(1);
  std::vector<double> x = {-3.1, -0.4, 0.0, 0.7, 2.9}, y(5), dx(5);
  const std::vector<double> dy = {1, -2, 0.5, 3, 1};
  const auto dot = [&] {
    double sum = 0;
    for (int i = 0; i < 5; ++i) sum += y[i] * dy[i];
    return sum;
  };
  gelu_backward<double>(dy.data(), x.data(), dx.data(), 5, pool);
  for (int i = 0; i < 5; ++i)
    EXPECT_NEAR(dx[i],
                difference(x, i,
                           [&] {
                             gelu<double>(x.data(), y.data(), 5, pool);
                             return dot();
                           }),
                1e-9);
  silu_backward<double>(dy.data(), x.data(), dx.data(), 5, pool);
  for (int i = 0; i < 5; ++i)
    EXPECT_NEAR(dx[i],
                difference(x, i,
                           [&] {
                             silu<double>(x.data(), y.data(), 5, pool);
                             return dot();
                           }),
                1e-9);
}

}  // namespace
}  // namespace quintet::kernels::cpu::test

#include "kernels/cpu/experts/expert_act.h"

#include "kernels/support.h"

namespace quintet::kernels::cpu::test {
namespace {

double sigmoid(double z) { return z >= 0 ? 1 / (1 + std::exp(-z)) : std::exp(z) / (1 + std::exp(z)); }
double silu(double z) { return z * sigmoid(z); }
double silu_slope(double z) { return sigmoid(z) * (1 + z * sigmoid(-z)); }

template <class T>
class ExpertAct : public testing::Test {};
TYPED_TEST_SUITE(ExpertAct, AllTypes);

TYPED_TEST(ExpertAct, MatchesReference) {
  using T = TypeParam;
  using S = Stat<T>;
  const double u = unit<S>();
  for (const auto& [rows, n] : {std::pair<int64_t, int64_t>{0, 4}, {1, 1}, {3, 7}, {70, 65}, {9, 2048}}) {
    const auto gate = random_values<T>(rows * n, 51, 2.0), up = random_values<T>(rows * n, 52),
               dh = random_values<T>(rows * n, 53), weight = random_values<S>(rows, 54);
    std::vector<double> h(gate.size()), dgate(gate.size()), dup(gate.size()), dweight(weight.size(), 0.0),
        size(weight.size(), 0.0);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t i = 0; i < n; ++i) {
        const size_t at = static_cast<size_t>(r * n + i), row = static_cast<size_t>(r);
        h[at] = weight[row] * silu(gate[at]) * up[at];
        dgate[at] = weight[row] * dh[at] * up[at] * silu_slope(gate[at]);
        dup[at] = weight[row] * dh[at] * silu(gate[at]);
        dweight[row] += dh[at] * silu(gate[at]) * up[at];
        size[row] += std::abs(dh[at] * silu(gate[at]) * up[at]);
      }
    const double cols = static_cast<double>(n);
    run_everywhere([&](ThreadPool& pool) {
      const Buffer<T> bdh(dh);
      Buffer<T> bg(gate), bu(up), bh(rows * n);
      const Buffer<S> bw(weight);
      Buffer<S> bdw(rows);
      expert_act<T>(bg.data(), bu.data(), bw.data(), bh.data(), rows, n, {}, pool);
      // The gradients over gate and up.
      expert_act_backward<T>(bdh.data(), bg.data(), bu.data(), bw.data(), bg.data(), bu.data(), bdw.data(),
                             rows, n, {}, pool);
      expect_near(
          bh, h, [&](int64_t i) { return 64 * u * std::abs(h[static_cast<size_t>(i)]); }, "h");
      expect_near(
          bg, dgate, [&](int64_t) { return 64 * u * 64; }, "dgate");
      expect_near(
          bu, dup, [&](int64_t) { return 64 * u * 64; }, "dup");
      expect_near(
          bdw, dweight, [&](int64_t r) { return (64 + cols) * u * size[static_cast<size_t>(r)]; }, "dweight");
      return bytes_of(bh, bg, bu, bdw);
    });
  }
}

TYPED_TEST(ExpertAct, ScaleRowsMatchesReference) {
  using T = TypeParam;
  const double u = unit<Stat<T>>();
  for (const auto& [rows, n] : {std::pair<int64_t, int64_t>{1, 1}, {3, 7}, {70, 65}, {9, 2048}}) {
    const auto y = random_values<T>(rows * n, 61), g = random_values<T>(rows, 62, 2.0),
               dz = random_values<T>(rows * n, 63);
    std::vector<double> z(y.size()), dy(y.size()), dg(g.size(), 0.0), size(g.size(), 0.0);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t i = 0; i < n; ++i) {
        const size_t at = static_cast<size_t>(r * n + i), row = static_cast<size_t>(r);
        const double s = sigmoid(g[row]), slope = s * sigmoid(-g[row]);
        z[at] = s * y[at];
        dy[at] = s * dz[at];
        dg[row] += slope * dz[at] * y[at];
        size[row] += slope * std::abs(dz[at] * y[at]);
      }
    const double cols = static_cast<double>(n);
    run_everywhere([&](ThreadPool& pool) {
      const Buffer<T> by(y), bg(g);
      Buffer<T> bz(rows * n), bdy(dz), bdg(rows);
      scale_rows<T>(by.data(), bg.data(), bz.data(), rows, n, pool);
      scale_rows_backward<T>(bdy.data(), by.data(), bg.data(), bdy.data(), bdg.data(), rows, n, pool);
      expect_near(
          bz, z, [&](int64_t i) { return 64 * u * std::abs(z[static_cast<size_t>(i)]); }, "z");
      expect_near(
          bdy, dy, [&](int64_t i) { return 64 * u * std::abs(dy[static_cast<size_t>(i)]); }, "dy");
      expect_near(
          bdg, dg, [&](int64_t r) { return (64 + cols) * u * size[static_cast<size_t>(r)]; }, "dg");
      return bytes_of(bz, bdy, bdg);
    });
  }
}

}  // namespace
}  // namespace quintet::kernels::cpu::test

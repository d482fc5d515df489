#include "kernels/cpu/norm/norm.h"

#include "kernels/support.h"

namespace quintet::kernels::cpu::test {
namespace {

struct Reference {
  std::vector<double> y, mean, rstd, dx, dw, db;
  std::vector<double> abs_dw, abs_db;  // sums of absolute terms, which bound the rounding of the sums
};

// Plain double loops; with centred = false this is RMSNorm.
Reference reference(const std::vector<double>& x, const std::vector<double>& w, const std::vector<double>& b,
                    const std::vector<double>& dy, int64_t rows, int64_t n, double eps, bool centred) {
  Reference out;
  out.y = out.dx = std::vector<double>(x.size());
  out.dw = out.db = out.abs_dw = out.abs_db = std::vector<double>(static_cast<size_t>(n));
  for (int64_t r = 0; r < rows; ++r) {
    const double *xr = x.data() + r * n, *g = dy.data() + r * n;
    double mean = 0, square = 0, m1 = 0, m2 = 0;
    if (centred)
      for (int64_t i = 0; i < n; ++i) mean += xr[i] / n;
    for (int64_t i = 0; i < n; ++i) square += (xr[i] - mean) * (xr[i] - mean) / n;
    const double rstd = 1 / std::sqrt(square + eps);
    out.mean.push_back(mean);
    out.rstd.push_back(rstd);
    for (int64_t i = 0; i < n; ++i) {
      const double h = (xr[i] - mean) * rstd;
      out.y[r * n + i] = h * w[i] + (centred ? b[i] : 0);
      out.dw[i] += g[i] * h;
      out.db[i] += g[i];
      // Includes the effect of an error of the mean (of order 1) on a term.
      out.abs_dw[i] += std::abs(g[i]) * (std::abs(h) + rstd);
      out.abs_db[i] += std::abs(g[i]);
      m1 += centred ? g[i] * w[i] / n : 0;
      m2 += g[i] * w[i] * h / n;
    }
    for (int64_t i = 0; i < n; ++i)
      out.dx[r * n + i] = rstd * (g[i] * w[i] - m1 - (xr[i] - mean) * rstd * m2);
  }
  return out;
}

template <class T>
class Norm : public testing::Test {};
TYPED_TEST_SUITE(Norm, AllTypes);

constexpr int64_t kShapes[][2] = {{1, 1}, {3, 7}, {130, 65}, {33, 256}, {2100, 64}, {5, 1000}};

TYPED_TEST(Norm, MatchesReference) {
  using T = TypeParam;
  using S = Stat<T>;
  const double eps = 1e-5;
  for (bool centred : {false, true})
    for (const auto& [rows, n] : kShapes) {
      SCOPED_TRACE(testing::Message() << (centred ? "layernorm " : "rmsnorm ") << rows << " x " << n);
      const auto x = random_values<T>(rows * n, 1, 1.5, 0.5), w = random_values<T>(n, 2, 0.3, 1.0),
                 b = random_values<T>(n, 3), dy = random_values<T>(rows * n, 4);
      const auto dw0 = random_values<float>(n, 5);
      const Reference want = reference(x, w, b, dy, rows, n, eps, centred);
      // A row sum of n terms has relative error about n units of S, and less with the tree; rstd stays below
      // 320.
      const double u = unit<S>() * (static_cast<double>(n) + 16);
      run_everywhere([&](ThreadPool& pool) {
        const Buffer<T> bx(x), bw(w), bb(b), bdy(dy);
        Buffer<T> y(rows * n), dx(rows * n);
        Buffer<S> mean(rows), rstd(rows);
        Buffer<Grad<T>> dw(dw0), db(dw0), fresh(n);
        const int64_t bytes =
            centred ? layernorm_dw_workspace_bytes<T>(rows, n) : rmsnorm_dw_workspace_bytes<T>(rows, n);
        Buffer<uint8_t> workspace(bytes);
        if (centred) {
          layernorm<T>(bx.data(), bw.data(), bb.data(), y.data(), mean.data(), rstd.data(), rows, n, eps,
                       pool);
          Buffer<T> again(rows * n);
          layernorm_dx<T>(bdy.data(), bx.data(), bw.data(), mean.data(), rstd.data(), nullptr, dx.data(),
                          rows, n, pool, bb.data(), again.data());
          EXPECT_EQ(bytes_of(again), bytes_of(y)) << "the result again";
          layernorm_dw<T>(bdy.data(), bx.data(), mean.data(), rstd.data(), dw.data(), db.data(), true, rows,
                          n, workspace.data(), pool);
          layernorm_dw<T>(bdy.data(), bx.data(), mean.data(), rstd.data(), fresh.data(), nullptr, false, rows,
                          n, workspace.data(), pool);
        } else {
          std::memset(mean.data(), 0, mean.bytes().size());
          rmsnorm<T>(bx.data(), bw.data(), y.data(), rstd.data(), rows, n, eps, pool);
          Buffer<T> again(rows * n);
          rmsnorm_dx<T>(bdy.data(), bx.data(), bw.data(), rstd.data(), nullptr, dx.data(), rows, n, pool, 0,
                        again.data());
          EXPECT_EQ(bytes_of(again), bytes_of(y)) << "the result again";
          rmsnorm_dw<T>(bdy.data(), bx.data(), rstd.data(), dw.data(), true, rows, n, workspace.data(), pool);
          rmsnorm_dw<T>(bdy.data(), bx.data(), rstd.data(), fresh.data(), false, rows, n, workspace.data(),
                        pool);
        }
        const auto row = [&](int64_t i) { return static_cast<size_t>(i / n); };
        expect_near(
            rstd, want.rstd, [&](int64_t i) { return u * 4 * want.rstd[i]; }, "rstd");
        // The mean of a row of one is exact, but the deviation from it is only as accurate as the mean's
        // rounding.
        const double spread = 8.0;
        expect_near(
            y, want.y, [&](int64_t i) { return u * 4 * (std::abs(want.y[i]) + spread * want.rstd[row(i)]); },
            "y");
        expect_near(
            dx, want.dx,
            [&](int64_t i) { return u * 16 * spread * want.rstd[row(i)] * (1 + want.rstd[row(i)]); }, "dx");
        // Additions between a term and the total: within four rows, over a chunk, over at most 64 chunks.
        const double depth = static_cast<double>(rows) / 64 + 32 + 64 + 8;
        const auto dw_slack = [&](int64_t i) {
          return (unit<S>() * depth + 4 * u) * (want.abs_dw[i] + std::abs(dw0[i]));
        };
        const auto db_slack = [&](int64_t i) {
          return unit<S>() * depth * (want.abs_db[i] + std::abs(dw0[i]));
        };
        std::vector<double> dw_sum = want.dw, db_sum = want.db;
        for (int64_t i = 0; i < n; ++i) {
          dw_sum[i] += dw0[i];
          db_sum[i] += dw0[i];
        }
        expect_near(dw, dw_sum, dw_slack, "dw accumulated");
        expect_near(fresh, want.dw, dw_slack, "dw");
        if (centred) expect_near(db, db_sum, db_slack, "db accumulated");
        return bytes_of(y, dx, mean, rstd, dw, db, fresh);
      });
    }
}

// In place of the gradient, of the addend, and separate: the gradient plus the addend, rounded once.
TYPED_TEST(Norm, AddsTheAddendToTheGradient) {
  using T = TypeParam;
  using S = Stat<T>;
  const int64_t rows = 9, n = 37;
  const auto x = random_values<T>(rows * n, 1), w = random_values<T>(n, 2),
             dy = random_values<T>(rows * n, 3), addend = random_values<T>(rows * n, 4),
             zeros = std::vector<double>(n, 0.0);
  for (const bool centred : {false, true}) {
    SCOPED_TRACE(centred ? "layernorm" : "rmsnorm");
    const Reference want = reference(x, w, zeros, dy, rows, n, 1e-5, centred);
    std::vector<double> sum = want.dx;
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += addend[i];
    run_everywhere([&](ThreadPool& pool) {
      const Buffer<T> bx(x), bw(w), bdy(dy), badd(addend);
      Buffer<T> y(rows * n), apart(rows * n), over_dy(dy), over_addend(addend);
      Buffer<S> mean(rows), rstd(rows);
      const auto backward = [&](const T* from, const T* more, T* to) {
        if (centred)
          layernorm_dx<T>(from, bx.data(), bw.data(), mean.data(), rstd.data(), more, to, rows, n, pool);
        else
          rmsnorm_dx<T>(from, bx.data(), bw.data(), rstd.data(), more, to, rows, n, pool);
      };
      if (centred)
        layernorm<T>(bx.data(), bw.data(), nullptr, y.data(), mean.data(), rstd.data(), rows, n, 1e-5, pool);
      else
        rmsnorm<T>(bx.data(), bw.data(), y.data(), rstd.data(), rows, n, 1e-5, pool);
      backward(bdy.data(), badd.data(), apart.data());
      backward(over_dy.data(), badd.data(), over_dy.data());
      backward(bdy.data(), over_addend.data(), over_addend.data());
      // Sums of n terms of order 1, as above.
      expect_near(
          apart, sum, [&](int64_t) { return 64 * unit<S>() * n; }, "dx");
      EXPECT_EQ(apart.bytes(), over_dy.bytes());
      EXPECT_EQ(apart.bytes(), over_addend.bytes());
      return apart.bytes();
    });
  }
}

TEST(NormGradient, MatchesDifferences) {
  const int64_t rows = 3, n = 7;
  auto x = random_values<double>(rows * n, 11), w = random_values<double>(n, 12),
       b = random_values<double>(n, 13);
  const auto dy = random_values<double>(rows * n, 14);
  ThreadPool pool(1);
  for (bool centred : {false, true}) {
    std::vector<double> y(rows * n), mean(rows), rstd(rows), dx(rows * n), dw(n), db(n);
    const auto loss = [&] {
      if (centred)
        layernorm<double>(x.data(), w.data(), b.data(), y.data(), mean.data(), rstd.data(), rows, n, 1e-5,
                          pool);
      else
        rmsnorm<double>(x.data(), w.data(), y.data(), rstd.data(), rows, n, 1e-5, pool);
      double sum = 0;
      for (int64_t i = 0; i < rows * n; ++i) sum += y[i] * dy[i];
      return sum;
    };
    loss();
    Buffer<double> workspace(layernorm_dw_workspace_bytes<double>(rows, n) / 8);
    if (centred) {
      layernorm_dx<double>(dy.data(), x.data(), w.data(), mean.data(), rstd.data(), nullptr, dx.data(), rows,
                           n, pool);
      layernorm_dw<double>(dy.data(), x.data(), mean.data(), rstd.data(), dw.data(), db.data(), false, rows,
                           n, workspace.data(), pool);
    } else {
      rmsnorm_dx<double>(dy.data(), x.data(), w.data(), rstd.data(), nullptr, dx.data(), rows, n, pool);
      rmsnorm_dw<double>(dy.data(), x.data(), rstd.data(), dw.data(), false, rows, n, workspace.data(), pool);
    }
    for (int64_t i = 0; i < rows * n; ++i) EXPECT_NEAR(dx[i], difference(x, i, loss), 1e-8);
    for (int64_t i = 0; i < n; ++i) EXPECT_NEAR(dw[i], difference(w, i, loss), 1e-8);
    for (int64_t i = 0; centred && i < n; ++i) EXPECT_NEAR(db[i], difference(b, i, loss), 1e-8);
  }
}

TEST(NormEdges, NoRowsZeroGradient) {
  ThreadPool pool(2);
  Buffer<float> dw(std::vector<double>{1, 2, 3}), workspace(rmsnorm_dw_workspace_bytes<float>(0, 3) / 4);
  rmsnorm_dw<float>(nullptr, nullptr, nullptr, dw.data(), true, 0, 3, workspace.data(), pool);
  EXPECT_EQ(dw[1], 2);
  rmsnorm_dw<float>(nullptr, nullptr, nullptr, dw.data(), false, 0, 3, workspace.data(), pool);
  EXPECT_EQ(dw[1], 0);
}

}  // namespace
}  // namespace quintet::kernels::cpu::test

#include "kernels/cuda/norm/norm.h"

#include "gpu/device.h"
#include "kernels/cpu/norm/norm.h"
#include "kernels/cuda/elementwise/pointwise.h"

namespace quintet::kernels::cuda::test {
namespace {

template <class T>
class GpuNorm : public testing::Test {};
TYPED_TEST_SUITE(GpuNorm, cpu::test::AllTypes);

// One size for each way of sharing a row among threads, rows that are not multiples of 16 bytes, and so many
// rows that blocks iterate several times.
constexpr int64_t kShapes[][2] = {{1, 1},     {5, 7},     {300, 128}, {1003, 64}, {37, 512},
                                  {129, 768}, {43, 640},  {43, 300},  {40, 1024}, {35, 1536},
                                  {65, 2048}, {21, 3072}, {33, 4096}, {11, 6144}, {9, 8192},
                                  {5, 12288}, {7, 16384}, {3, 40000}, {70, 1001}, {20011, 64}};

struct Reference {
  std::vector<double> y, mean, rstd, dx, dw, db, abs_dw, abs_db;
};

Reference reference(const std::vector<double>& x, const std::vector<double>& w, const std::vector<double>& b,
                    const std::vector<double>& dy, const std::vector<double>& addend, int64_t rows, int64_t n,
                    bool centred) {
  device::ThreadPool pool(1);
  Reference r;
  r.y = r.dx = std::vector<double>(x.size());
  r.mean = r.rstd = std::vector<double>(static_cast<size_t>(rows));
  r.dw = r.db = r.abs_dw = r.abs_db = std::vector<double>(static_cast<size_t>(n));
  std::vector<double> workspace(
      static_cast<size_t>(cpu::layernorm_dw_workspace_bytes<double>(rows, n) / 8 + 8));
  if (centred) {
    cpu::layernorm(x.data(), w.data(), b.data(), r.y.data(), r.mean.data(), r.rstd.data(), rows, n, 1e-5,
                   pool);
    cpu::layernorm_dx<double>(dy.data(), x.data(), w.data(), r.mean.data(), r.rstd.data(), addend.data(),
                              r.dx.data(), rows, n, pool);
    cpu::layernorm_dw(dy.data(), x.data(), r.mean.data(), r.rstd.data(), r.dw.data(), r.db.data(), false,
                      rows, n, workspace.data(), pool);
  } else {
    cpu::rmsnorm(x.data(), w.data(), r.y.data(), r.rstd.data(), rows, n, 1e-5, pool);
    cpu::rmsnorm_dx<double>(dy.data(), x.data(), w.data(), r.rstd.data(), addend.data(), r.dx.data(), rows, n,
                            pool);
    cpu::rmsnorm_dw(dy.data(), x.data(), r.rstd.data(), r.dw.data(), false, rows, n, workspace.data(), pool);
  }
  for (int64_t t = 0; t < rows; ++t)
    for (int64_t i = 0; i < n; ++i) {
      const size_t at = static_cast<size_t>(t * n + i), s = static_cast<size_t>(t);
      r.abs_dw[i] += std::abs(dy[at]) * (std::abs(x[at] - r.mean[s]) + 1) * r.rstd[s];
      r.abs_db[i] += std::abs(dy[at]);
    }
  return r;
}

TYPED_TEST(GpuNorm, MatchesCpu) {
  using T = TypeParam;
  using S = Stat<T>;
  for (bool centred : {false, true})
    for (const auto& [most_rows, n] : kShapes)
      for (int64_t shift : kShifts) {
        // At most two iterations of blocks whose groups of threads all have rows; other types and addresses
        // do not change how blocks share memory.
        const bool rounds = n == 64 && shift == 0 && std::is_same_v<T, Bf16>;
        const int64_t rows = under_racecheck() ? std::min<int64_t>(most_rows, rounds ? 9000 : 17) : most_rows;
        if (under_racecheck() && shift != 0 && n > 1001) continue;
        SCOPED_TRACE(testing::Message()
                     << (centred ? "layernorm " : "rmsnorm ") << rows << " x " << n << " + " << shift);
        const auto a = random_values<T>(rows * n, 1, 1.5, 0.5), residual = random_values<T>(rows * n, 6),
                   w = random_values<T>(n, 2, 0.3, 1.0), b = random_values<T>(n, 3),
                   dy = random_values<T>(rows * n, 4), addend = random_values<T>(rows * n, 7),
                   dw0 = random_values<float>(n, 5);
        std::vector<double> x(a.size());
        for (size_t i = 0; i < a.size(); ++i)
          x[i] = value(element<T>(static_cast<double>(static_cast<S>(a[i]) + static_cast<S>(residual[i]))));
        const Reference want = reference(x, w, b, dy, addend, rows, n, centred);
        Device<T> da(a, shift), dres(residual, shift), dx_in(x, shift), dw_in(w, shift), db_in(b, shift),
            ddy(dy, shift), dadd(addend, shift), sum(rows * n, shift), y(rows * n, shift),
            y2(rows * n, shift), y3(rows * n, shift), dx(rows * n, shift), dx2(rows * n, shift);
        Device<S> mean(rows), rstd(rows), dw(dw0), db(dw0), dw2(n), db2(n);
        Device<uint8_t> workspace(layernorm_dw_workspace_bytes<T>(rows, n));
        if (centred) {
          add_layernorm<T>(da.data(), dres.data(), dw_in.data(), db_in.data(), sum.data(), y.data(),
                           mean.data(), rstd.data(), rows, n, 1e-5, nullptr);
          layernorm<T>(dx_in.data(), dw_in.data(), db_in.data(), y2.data(), mean.data(), rstd.data(), rows, n,
                       1e-5, nullptr);
          layernorm_dx<T>(ddy.data(), dx_in.data(), dw_in.data(), mean.data(), rstd.data(), dadd.data(),
                          dx2.data(), rows, n, nullptr);
          layernorm_dw<T>(ddy.data(), dx_in.data(), mean.data(), rstd.data(), dw2.data(), db2.data(), false,
                          rows, n, workspace.data(), nullptr);
          layernorm_backward<T>(ddy.data(), dx_in.data(), dw_in.data(), db_in.data(), mean.data(),
                                rstd.data(), dadd.data(), dx.data(), y3.data(), dw.data(), db.data(), true,
                                rows, n, workspace.data(), nullptr);
        } else {
          add_rmsnorm<T>(da.data(), dres.data(), dw_in.data(), sum.data(), y.data(), rstd.data(), rows, n,
                         1e-5, nullptr);
          rmsnorm<T>(dx_in.data(), dw_in.data(), y2.data(), rstd.data(), rows, n, 1e-5, nullptr);
          rmsnorm_dx<T>(ddy.data(), dx_in.data(), dw_in.data(), rstd.data(), dadd.data(), dx2.data(), rows, n,
                        nullptr);
          rmsnorm_dw<T>(ddy.data(), dx_in.data(), rstd.data(), dw2.data(), false, rows, n, workspace.data(),
                        nullptr);
          rmsnorm_backward<T>(ddy.data(), dx_in.data(), dw_in.data(), rstd.data(), dadd.data(), dx.data(),
                              y3.data(), dw.data(), true, rows, n, workspace.data(), nullptr);
        }
        EXPECT_EQ(sum.values(), x);
        EXPECT_EQ(y.bits(), y2.bits());
        // A row sum is a tree over threads of a short serial part; errors of mean and rstd count relative to
        // the row's own size (about 2), times rstd (up to 320 for a row of one element).
        const auto row_scale = [&](size_t i) {
          const size_t r = i / static_cast<size_t>(n);
          return 20 * (1 + want.rstd[r]) * (1 + (n == 1 ? want.rstd[r] : 0));
        };
        const double steps = 16 + static_cast<double>(n) / 128;
        expect_close(y, want.y, steps, row_scale, "y");
        EXPECT_EQ(y3.bits(), y.bits()) << "y again";
        expect_close(rstd, want.rstd, 4 * steps, row_scale, "rstd");
        if (centred) expect_close(mean, want.mean, steps, row_scale, "mean");
        expect_close(dx, want.dx, steps, row_scale, "dx");
        expect_close(dx2, want.dx, steps, row_scale, "dx alone");
        const double sums = 64 + static_cast<double>(rows) / 64;
        expect_close(
            dw2, want.dw, sums, [&](size_t i) { return 4 * want.abs_dw[i]; }, "dw");
        std::vector<double> added = want.dw;
        for (size_t i = 0; i < added.size(); ++i) added[i] += dw0[i];
        expect_close(
            dw, added, sums, [&](size_t i) { return 4 * want.abs_dw[i] + std::abs(dw0[i]); }, "dw added");
        if (centred) {
          expect_close(
              db2, want.db, sums, [&](size_t i) { return want.abs_db[i]; }, "db");
          for (size_t i = 0; i < added.size(); ++i) added[i] = want.db[i] + dw0[i];
          expect_close(
              db, added, sums, [&](size_t i) { return want.abs_db[i] + std::abs(dw0[i]); }, "db added");
        }
      }
}

TYPED_TEST(GpuNorm, BackwardInPlace) {
  using T = TypeParam;
  using S = Stat<T>;
  const int64_t rows = under_racecheck() ? 40 : 777, n = 1024;
  const auto x = random_values<T>(rows * n, 1), w = random_values<T>(n, 2),
             dy = random_values<T>(rows * n, 3), addend = random_values<T>(rows * n, 4);
  for (const bool centred : {false, true}) {
    SCOPED_TRACE(centred ? "layernorm" : "rmsnorm");
    Device<T> bx(x), bw(w), bdy(dy), badd(addend), y(rows * n), dx(rows * n);
    Device<S> mean(rows), rstd(rows), dw(n), dw2(n);
    Device<uint8_t> workspace(layernorm_dw_workspace_bytes<T>(rows, n));
    const auto backward = [&](T* to, S* sums) {
      if (centred)
        layernorm_backward<T>(bdy.data(), bx.data(), bw.data(), nullptr, mean.data(), rstd.data(),
                              badd.data(), to, nullptr, sums, nullptr, false, rows, n, workspace.data(),
                              nullptr);
      else
        rmsnorm_backward<T>(bdy.data(), bx.data(), bw.data(), rstd.data(), badd.data(), to, nullptr, sums,
                            false, rows, n, workspace.data(), nullptr);
    };
    layernorm<T>(bx.data(), bw.data(), nullptr, y.data(), mean.data(), rstd.data(), rows, n, 1e-6, nullptr);
    backward(dx.data(), dw.data());
    backward(badd.data(), dw2.data());
    EXPECT_EQ(badd.bits(), dx.bits());
    EXPECT_EQ(dw.bits(), dw2.bits());
    badd.set(addend);
    backward(bdy.data(), dw2.data());
    EXPECT_EQ(bdy.bits(), dx.bits());
    EXPECT_EQ(dw.bits(), dw2.bits());
  }
}

// Blocks that iterate several times, small ones after them, and rows left over: the bits of every row are as
// if it were among few, and sums are those of slices.
template <class T>
void many_rows(int64_t rows, int64_t n, bool centred) {
  using S = Stat<T>;
  // Short slices where rows are few: each launch takes its time under a checker.
  const int64_t slice = under_racecheck() ? 7001
                        : rows > 20000    ? 1003
                                          : 61,
                slices = (rows + slice - 1) / slice;
  Device<T> noise((3 * rows + 2) * n);
  fill_noise(noise.data(), (3 * rows + 2) * n, nullptr);
  const T *const x = noise.data(), *const more = x + rows * n, *const dy = more + rows * n,
                 *const w = dy + rows * n, *const b = w + n;
  struct Results {
    Device<T> sum, y, dx, dx_alone, again;
    Device<S> mean, rstd, dw, db, dw_alone;
    Results(int64_t rows, int64_t n, int64_t sums)
        : sum(rows * n),
          y(rows * n),
          dx(rows * n),
          dx_alone(rows * n),
          again(rows * n),
          mean(rows),
          rstd(rows),
          dw(sums * n),
          db(sums * n),
          dw_alone(sums * n) {}
  };
  Device<uint8_t> workspace(layernorm_dw_workspace_bytes<T>(rows, n));
  const auto run = [&](int64_t first, int64_t count, Results& r, int64_t to) {
    const int64_t at = first * n;
    T *const sum = r.sum.data() + at, *const y = r.y.data() + at, *const dx = r.dx.data() + at,
             *const alone = r.dx_alone.data() + at, *const again = r.again.data() + at;
    S *const mean = r.mean.data() + first, *const rstd = r.rstd.data() + first, *const dw = r.dw.data() + to,
             *const db = r.db.data() + to, *const dw_alone = r.dw_alone.data() + to;
    const T *const d = dy + at, *const other = more + at;
    void* const space = workspace.data();
    if (centred) {
      add_layernorm<T>(x + at, other, w, b, sum, y, mean, rstd, count, n, 1e-5, nullptr);
      layernorm_backward<T>(d, sum, w, b, mean, rstd, other, dx, again, dw, db, false, count, n, space,
                            nullptr);
      layernorm_dx<T>(d, sum, w, mean, rstd, nullptr, alone, count, n, nullptr);
      layernorm_dw<T>(d, sum, mean, rstd, dw_alone, nullptr, false, count, n, space, nullptr);
    } else {
      add_rmsnorm<T>(x + at, other, w, sum, y, rstd, count, n, 1e-5, nullptr);
      rmsnorm_backward<T>(d, sum, w, rstd, other, dx, again, dw, false, count, n, space, nullptr);
      rmsnorm_dx<T>(d, sum, w, rstd, nullptr, alone, count, n, nullptr);
      rmsnorm_dw<T>(d, sum, rstd, dw_alone, false, count, n, space, nullptr);
    }
  };
  Results all(rows, n, 1), repeated(rows, n, 1), parts(rows, n, slices);
  run(0, rows, all, 0);
  run(0, rows, repeated, 0);
  for (int64_t s = 0; s < slices; ++s) run(s * slice, std::min(slice, rows - s * slice), parts, s * n);
  EXPECT_TRUE(all.again.bits() == all.y.bits()) << "y again";
  for (Results* other : {&repeated, &parts}) {
    EXPECT_TRUE(other->sum.bits() == all.sum.bits()) << "sum";
    EXPECT_TRUE(other->y.bits() == all.y.bits()) << "y";
    EXPECT_TRUE(other->rstd.bits() == all.rstd.bits()) << "rstd";
    EXPECT_TRUE(other->dx.bits() == all.dx.bits()) << "dx";
    EXPECT_TRUE(other->dx_alone.bits() == all.dx_alone.bits()) << "dx alone";
    EXPECT_TRUE(!centred || other->mean.bits() == all.mean.bits()) << "mean";
  }
  EXPECT_TRUE(repeated.dw.bits() == all.dw.bits()) << "dw";
  EXPECT_TRUE(repeated.dw_alone.bits() == all.dw_alone.bits()) << "dw alone";
  EXPECT_TRUE(!centred || repeated.db.bits() == all.db.bits()) << "db";
  const auto expect_sums = [&](Device<S>& got, Device<S>& of_slices, const char* what) {
    std::vector<double> want(static_cast<size_t>(n)), size(want.size());
    const std::vector<double> terms = of_slices.values();
    for (size_t i = 0; i < terms.size(); ++i) {
      want[i % want.size()] += terms[i];
      size[i % want.size()] += std::abs(terms[i]);
    }
    // Within a slice terms of order one cancel.
    expect_close(
        got, want, 256, [&](size_t i) { return size[i] + static_cast<double>(rows) / 16; }, what);
  };
  expect_sums(all.dw, parts.dw, "dw");
  expect_sums(all.dw_alone, parts.dw_alone, "dw alone");
  if (centred) expect_sums(all.db, parts.db, "db");
}

TEST(GpuNormRows, ManyRowsLikeFew) {
  int processors = 0;
  require(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));
  // Rows that a block of bf16 has at a time, and how often all blocks iterate: from eight times on, small
  // ones follow them.
  struct Case {
    int64_t n, at_once, rounds;
  };
  for (const Case& c : {Case{64, 64, 9},
                        {128, 64, 9},
                        {384, 16, 5},  // f32, like 768 in bf16
                        {512, 16, 2},
                        {768, 4, 18},  // two blocks per multiprocessor
                        {1024, 8, 9},
                        {2048, 4, 9},
                        {4096, 2, 9},
                        {8192, 1, 9},
                        {16384, 1, 4},
                        {1000, 8, 2}})
    for (const bool centred : {false, true}) {
      // One size with a row for a part of a warp, one for several warps: enough to see blocks
      // iterate.
      if (under_racecheck() && c.n != 64 && c.n != 768) continue;
      const int64_t rounds = under_racecheck() && c.n == 768 ? 4 : c.rounds,
                    rows = rounds * c.at_once * processors + 13;
      SCOPED_TRACE(testing::Message() << (centred ? "layernorm " : "rmsnorm ") << rows << " x " << c.n);
      many_rows<Bf16>(rows, c.n, centred);
      if (c.n <= 4096 && !under_racecheck()) many_rows<float>(rows, c.n, centred);
    }
}

}  // namespace
}  // namespace quintet::kernels::cuda::test

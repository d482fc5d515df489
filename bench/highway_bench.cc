// Our CPU kernels beside the same kernels written with Google Highway (decision 0016), on one thread, in CPU
// time: the two alternate, and each figure is the fastest of the rounds.
//   highway_bench [rounds]
#include <fmt/core.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "highway/kernels.h"
#include "kernels/cpu/elementwise/activation.h"
#include "kernels/cpu/matmul/tile.h"
#include "kernels/cpu/norm/norm.h"
#include "kernels/cpu/optimizer/optimizer.h"

namespace {

namespace k = quintet::kernels::cpu;
using quintet::base::DType;

double cpu_seconds() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// Seconds per call, over at least 20 ms.
double time_of(const std::function<void()>& f) {
  int64_t calls = 0;
  const double start = cpu_seconds();
  double spent = 0;
  do {
    for (int i = 0; i < 8; ++i) f();
    calls += 8;
    spent = cpu_seconds() - start;
  } while (spent < 0.02);
  return spent / static_cast<double>(calls);
}

std::vector<float> values(size_t n, float scale) {
  std::vector<float> v(n);
  uint32_t x = 12345;
  for (float& e : v) {
    x = x * 1664525u + 1013904223u;
    e = scale * (static_cast<float>(x >> 8) / 8388608.0f - 1.0f);
  }
  return v;
}

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i)
    worst = std::max(worst, std::abs(double(a[i]) - double(b[i])) / std::max(1e-6, std::abs(double(a[i]))));
  return worst;
}

void report(const std::string& name, double units, const char* unit, int rounds,
            const std::function<void()>& own, const std::function<void()>& highway, double difference) {
  double ours = 1e30, theirs = 1e30;
  own(), highway();
  for (int r = 0; r < rounds; ++r) {
    ours = std::min(ours, time_of(own));
    theirs = std::min(theirs, time_of(highway));
  }
  fmt::print(
      "{:<26} ours {:7.1f}  Highway {:7.1f} {}   ours/Highway {:.3f}   largest relative difference {:.1e}\n",
      name, 1e-9 * units / ours, 1e-9 * units / theirs, unit, theirs / ours, difference);
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 15;
  quintet::device::ThreadPool pool(1);
  fmt::print("Highway target: {}\n", highway_bench::target());

  for (const int64_t n : {int64_t{1} << 15, int64_t{1} << 22}) {  // of L2, of memory
    const auto size = static_cast<size_t>(n);
    const std::string where = n < (1 << 20) ? ", in L2" : ", in memory";
    {
      const std::vector<float> p0 = values(size, 1), g = values(size, 0.1f);
      std::vector<float> p = p0, m(size), v(size), hp = p0, hm(size), hv(size);
      const double lr = 1e-3, clip = 0.5;
      const int64_t step = 3;
      k::AdamWScalars s;
      s.lr = &lr, s.step = &step, s.clip_scale = &clip, s.weight_decay = 0.1;
      const highway_bench::AdamW h{.keep = float(1 - lr * 0.1),
                                   .rate = float(lr / (1 - std::pow(0.9, 3))),
                                   .root = float(1 / std::sqrt(1 - std::pow(0.999, 3))),
                                   .clip = 0.5f,
                                   .beta1 = 0.9f,
                                   .beta2 = 0.999f,
                                   .rest1 = float(1 - 0.9),
                                   .rest2 = float(1 - 0.999),
                                   .eps = 1e-8f};
      const auto own = [&] {
        k::adamw<float, float, float, float>(p.data(), m.data(), v.data(), g.data(), nullptr, n, s, pool);
      };
      const auto highway = [&] { highway_bench::adamw(hp.data(), hm.data(), hv.data(), g.data(), n, h); };
      own(), highway();
      const double difference = largest_difference(p, hp);
      report("adamw f32" + where, 28.0 * n, "GB/s", rounds, own, highway, difference);
    }
    {
      const int64_t columns = 2048, rows = n / columns;
      const std::vector<float> x = values(size, 1), w = values(2048, 1);
      std::vector<float> y(size), hy(size), rstd(static_cast<size_t>(rows));
      const auto own = [&] {
        k::rmsnorm<float>(x.data(), w.data(), y.data(), rstd.data(), rows, columns, 1e-5, pool);
      };
      const auto highway = [&] {
        highway_bench::rmsnorm(x.data(), w.data(), hy.data(), rstd.data(), rows, columns, 1e-5f);
      };
      own(), highway();
      report("rmsnorm f32" + where, 8.0 * n, "GB/s", rounds, own, highway, largest_difference(y, hy));
    }
    {
      const std::vector<float> gate = values(size, 4), up = values(size, 1);
      std::vector<float> y(size), hy(size);
      const auto own = [&] { k::swiglu<float>(gate.data(), up.data(), n, y.data(), 1, n, pool, {}); };
      const auto highway = [&] { highway_bench::swiglu(gate.data(), up.data(), hy.data(), n); };
      own(), highway();
      report("swiglu f32" + where, 12.0 * n, "GB/s", rounds, own, highway, largest_difference(y, hy));
    }
  }
  const quintet::kernels::TileKernel& tile = quintet::kernels::tile_kernel(DType::F32);
  if (tile.shape.mr != 14 || tile.shape.nr != 32) {
    fmt::print("the GEMM tile of this processor is not the one of AVX-512: not compared\n");
    return 0;
  }
  const int64_t depth = 512;
  const std::vector<float> a = values(14 * 512, 1), b = values(32 * 512, 1);
  std::vector<float> c(14 * 32), hc(14 * 32);
  const auto own = [&] { tile.tile(depth, a.data(), b.data(), c.data(), 32, true); };
  const auto highway = [&] { highway_bench::tile14(depth, a.data(), b.data(), hc.data(), 32); };
  own(), highway();
  report("GEMM tile 14 x 32 x 512", 2.0 * 14 * 32 * depth, "GFLOP/s", rounds, own, highway,
         largest_difference(c, hc));
}

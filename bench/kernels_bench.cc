// Speed of the CPU kernels: GB/s compared with a memcpy of the same size for memory-bound kernels, GFLOP/s
// for attention.
//   kernels_bench [threads] [name filter] [--cpu-time]
// With --cpu-time, times are CPU time per thread, which is less sensitive to other load.
#include <fmt/core.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "base/philox.h"
#include "kernels/cpu/attention/attention.h"
#include "kernels/cpu/elementwise/activation.h"
#include "kernels/cpu/elementwise/dropout.h"
#include "kernels/cpu/elementwise/pointwise.h"
#include "kernels/cpu/elementwise/rope.h"
#include "kernels/cpu/embedding/embedding.h"
#include "kernels/cpu/loss/loss.h"
#include "kernels/cpu/norm/norm.h"
#include "kernels/cpu/optimizer/optimizer.h"
#include "kernels/cpu/reduce/reduce.h"
#include "kernels/cpu/support/isa.h"

namespace {

using namespace quintet::kernels::cpu;

bool g_cpu_time = false;
std::string g_filter;

double seconds(int threads) {
  timespec t{};
  clock_gettime(g_cpu_time ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  const double now = static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  return g_cpu_time ? now / threads : now;
}

// The best of several runs of at least 30 ms.
double best_time(int threads, const std::function<void()>& f) {
  f();
  double best = 1e30;
  for (int round = 0; round < 5; ++round) {
    int calls = 0;
    const double start = seconds(threads);
    double spent = 0;
    do {
      f();
      ++calls;
      spent = seconds(threads) - start;
    } while (spent < 0.03);
    best = std::min(best, spent / calls);
  }
  return best;
}

template <class T>
const char* name_of() {
  return std::is_same_v<T, double> ? "f64" : std::is_same_v<T, float> ? "f32" : "bf16";
}

template <class T>
std::vector<T> random_elements(int64_t n) {
  std::vector<T> out(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i)
    out[static_cast<size_t>(i)] =
        T(static_cast<float>(quintet::base::uniform(1, static_cast<uint64_t>(i)) * 2 - 1));
  return out;
}

struct Reporter {
  ThreadPool& pool;
  double floor_gb_s = 0;  // of memcpy, bytes read plus bytes written

  void memory(const char* name, const char* type, int64_t bytes, const std::function<void()>& f) const {
    const std::string title = fmt::format("{} {}", name, type);
    if (title.find(g_filter) == std::string::npos) return;
    const double t = best_time(pool.threads(), f);
    const double rate = static_cast<double>(bytes) / t * 1e-9;
    fmt::print("{:<28} {:9.3f} ms {:8.2f} GB/s {:5.2f} of memcpy\n", title, t * 1e3, rate, rate / floor_gb_s);
  }
  void compute(const char* name, const char* type, double flops, const std::function<void()>& f) const {
    const std::string title = fmt::format("{} {}", name, type);
    if (title.find(g_filter) == std::string::npos) return;
    const double t = best_time(pool.threads(), f);
    fmt::print("{:<28} {:9.3f} ms {:8.1f} GFLOP/s\n", title, t * 1e3, flops / t * 1e-9);
  }
};

template <class T>
void rows_bench(const Reporter& report) {
  using S = Stat<T>;
  ThreadPool& pool = report.pool;
  const char* type = name_of<T>();
  const int64_t rows = 4096, n = 512, size = rows * n, e = sizeof(T);
  const auto x = random_elements<T>(size), dy = random_elements<T>(size), w = random_elements<T>(n);
  std::vector<T> y(size), dx(size);
  std::vector<S> mean(rows), rstd(rows), dw(n), db(n);
  std::vector<char> workspace(static_cast<size_t>(layernorm_dw_workspace_bytes<T>(rows, n)));
  report.memory("rmsnorm", type, 2 * size * e,
                [&] { rmsnorm<T>(x.data(), w.data(), y.data(), rstd.data(), rows, n, 1e-5, pool); });
  report.memory("rmsnorm_dx", type, 3 * size * e, [&] {
    rmsnorm_dx<T>(dy.data(), x.data(), w.data(), rstd.data(), nullptr, dx.data(), rows, n, pool);
  });
  report.memory("rmsnorm_dw", type, 2 * size * e, [&] {
    rmsnorm_dw<T>(dy.data(), x.data(), rstd.data(), dw.data(), true, rows, n, workspace.data(), pool);
  });
  report.memory("layernorm", type, 2 * size * e, [&] {
    layernorm<T>(x.data(), w.data(), w.data(), y.data(), mean.data(), rstd.data(), rows, n, 1e-5, pool);
  });
  report.memory("layernorm_dx", type, 3 * size * e, [&] {
    layernorm_dx<T>(dy.data(), x.data(), w.data(), mean.data(), rstd.data(), nullptr, dx.data(), rows, n,
                    pool);
  });
  report.memory("layernorm_dw", type, 2 * size * e, [&] {
    layernorm_dw<T>(dy.data(), x.data(), mean.data(), rstd.data(), dw.data(), db.data(), true, rows, n,
                    workspace.data(), pool);
  });
  report.memory("column_sum", type, size * e,
                [&] { column_sum<T>(dy.data(), db.data(), true, rows, n, workspace.data(), pool); });

  const int64_t heads = 8, dim = 64;
  std::vector<int32_t> positions(rows), samples(rows), ids(rows);
  for (int64_t t = 0; t < rows; ++t) {
    positions[t] = static_cast<int32_t>(t % 256);
    samples[t] = static_cast<int32_t>(t / 256);
    ids[t] = static_cast<int32_t>(t * 37 % 8192);
  }
  std::vector<double> frequencies(dim / 2);
  for (int64_t d = 0; d < dim / 2; ++d) frequencies[d] = std::pow(10000.0, -2.0 * d / dim);
  report.memory("rope", type, 2 * size * e, [&] {
    rope<T>(x.data(), n, positions.data(), frequencies.data(), 1.0, y.data(), n, rows, heads, dim, false,
            pool);
  });
  report.memory("dropout", type, 2 * size * e, [&] {
    dropout<T>(x.data(), samples.data(), positions.data(), 7, 0.1, 0, y.data(), rows, n, pool);
  });
  report.memory("add", type, 3 * size * e, [&] { add<T>(x.data(), dy.data(), y.data(), size, pool); });
  report.memory("gelu", type, 2 * size * e, [&] { gelu<T>(x.data(), y.data(), size, pool); });
  report.memory("gelu_backward", type, 3 * size * e,
                [&] { gelu_backward<T>(dy.data(), x.data(), dx.data(), size, pool); });
  report.memory("swiglu", type, 3 * size * e,
                [&] { swiglu<T>(x.data(), dy.data(), n, y.data(), rows, n, pool); });
  report.memory("swiglu_backward", type, 5 * size * e, [&] {
    swiglu_backward<T>(w.size() ? dy.data() : nullptr, x.data(), dy.data(), n, dx.data(), y.data(), nullptr,
                       rows, n, pool);
  });
  const auto table = random_elements<T>(8192 * n);
  std::vector<S> dtable(8192 * n);
  report.memory("embedding", type, 2 * size * e,
                [&] { embedding<T>(table.data(), ids.data(), 0, 8192, y.data(), rows, n, pool); });
  report.memory("embedding_dw", type, size * (e + 2 * static_cast<int64_t>(sizeof(S))),
                [&] { embedding_dw<T>(dy.data(), ids.data(), 0, 8192, dtable.data(), true, rows, n, pool); });

  const int64_t chunk = 256, vocab = 32000;
  auto logits = random_elements<T>(chunk * vocab);
  std::vector<double> losses(chunk);
  const double seed = 1.0 / chunk;
  double sum = 0;
  report.memory("cross_entropy", type, 2 * chunk * vocab * e, [&] {
    cross_entropy<T>(logits.data(), chunk, vocab, vocab, ids.data(), &seed, true, &sum, false, losses.data(),
                     nullptr, pool);
  });
}

template <class T>
void attention_bench(const Reporter& report, int64_t kv_heads) {
  using S = Stat<T>;
  ThreadPool& pool = report.pool;
  AttentionShape s;
  const int64_t tokens = 4096, seq_len = 256;
  s.q_rows = s.k_rows = {.seq_len = seq_len, .sequences = tokens / seq_len};
  s.heads = 8;
  s.kv_heads = kv_heads;
  s.head_dim = s.value_dim = 64;
  s.q_stride = s.o_stride = s.dq_stride = 8 * 64;
  s.k_stride = s.v_stride = s.dk_stride = s.dv_stride = kv_heads * 64;
  s.scale = 0.125;
  const auto q = random_elements<T>(tokens * 512), k = random_elements<T>(tokens * kv_heads * 64), v = k,
             dout = q;
  std::vector<T> o(q.size()), dq(q.size()), dk(k.size()), dv(k.size());
  std::vector<S> lse(tokens * s.heads);
  const int64_t bytes = std::max(attention_workspace_bytes<T>(s, pool.threads()),
                                 attention_backward_workspace_bytes<T>(s, pool.threads()));
  void* workspace = std::aligned_alloc(64, static_cast<size_t>(bytes + 63) / 64 * 64);
  // Only the causal half of seq_len^2 per head; two matmuls forward, five backward.
  const double pairs =
      static_cast<double>(tokens) * static_cast<double>(seq_len + 1) / 2 * static_cast<double>(s.heads);
  const std::string tag = fmt::format("{} kv={}", name_of<T>(), kv_heads);
  report.compute("attention", tag.c_str(), pairs * 2 * 2 * 64, [&] {
    attention<T>(s, q.data(), k.data(), v.data(), o.data(), lse.data(), workspace, pool);
  });
  report.compute("attention_backward", tag.c_str(), pairs * 5 * 2 * 64, [&] {
    attention_backward<T>(s, dout.data(), q.data(), k.data(), v.data(), o.data(), lse.data(), dq.data(),
                          dk.data(), dv.data(), workspace, pool);
  });
  std::free(workspace);
}

template <class M, class V, class C>
void optimizer_bench(const Reporter& report, const char* name) {
  const int64_t n = 4 << 20;
  auto p = random_elements<M>(n);
  const auto g = random_elements<M>(n);
  std::vector<V> m(n), v(n);
  std::vector<C> copy(n);
  const double lr = 1e-3;
  const int64_t step = 3;
  AdamWScalars k;
  k.lr = &lr;
  k.step = &step;
  const int64_t bytes = n * static_cast<int64_t>(3 * sizeof(M) + 4 * sizeof(V) + sizeof(C));
  report.memory("adamw", name, bytes, [&] {
    adamw<M, V, M, C>(p.data(), m.data(), v.data(), g.data(), copy.data(), n, k, report.pool);
  });
}

void flat_bench(const Reporter& report) {
  ThreadPool& pool = report.pool;
  const int64_t n = 4 << 20;
  const auto x = random_elements<float>(n);
  std::vector<Bf16> y(n);
  std::vector<char> workspace(static_cast<size_t>(reduce_workspace_bytes(n) + hash_workspace_bytes(4 * n)));
  double sum = 0;
  int32_t bad = 0;
  report.memory("cast", "f32 bf16", 6 * n, [&] { cast<float, Bf16>(x.data(), y.data(), n, pool); });
  report.memory("sum_squares", "f32", 4 * n,
                [&] { sum_squares<float>(x.data(), n, &sum, false, workspace.data(), pool); });
  report.memory("any_nonfinite", "f32", 4 * n,
                [&] { any_nonfinite<float>(x.data(), n, &bad, false, workspace.data(), pool); });
  volatile uint64_t hash = 0;
  report.memory("hash_bytes", "", 4 * n,
                [&] { hash = hash_bytes(x.data(), 4 * n, 1, workspace.data(), pool); });
}

}  // namespace

int main(int argc, char** argv) {
  int threads = 1;
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) == "--cpu-time")
      g_cpu_time = true;
    else if (std::atoi(argv[i]) > 0)
      threads = std::atoi(argv[i]);
    else
      g_filter = argv[i];
  }
  ThreadPool pool(threads);
  Reporter report{pool};
  const int64_t bytes = 8 << 20;
  std::vector<char> from(bytes, 1), to(bytes);
  const double t = best_time(threads, [&] {
    pool.parallel_for(0, bytes, 65536, [&](int64_t b, int64_t e, int) {
      std::memcpy(to.data() + b, from.data() + b, static_cast<size_t>(e - b));
    });
  });
  report.floor_gb_s = 2 * static_cast<double>(bytes) / t * 1e-9;
  fmt::print("{} threads, instruction set {}, memcpy of 8 MiB {:.2f} GB/s read plus written\n", threads,
             static_cast<int>(isa()), report.floor_gb_s);
  rows_bench<float>(report);
  rows_bench<Bf16>(report);
  optimizer_bench<float, float, Bf16>(report, "f32 f32 bf16");
  optimizer_bench<float, Bf16, Bf16>(report, "f32 bf16 bf16");
  flat_bench(report);
  for (int64_t kv : {8, 2}) {
    attention_bench<float>(report, kv);
    attention_bench<Bf16>(report, kv);
    attention_bench<double>(report, kv);
  }
  return 0;
}

// Experts with many rows run one after another, each with all threads; the others are spread over the
// threads, each expert on one: a product of few rows is over before a team has met twice.
#include "kernels/cpu/grouped_gemm.h"

#include <algorithm>
#include <atomic>

#include "base/error.h"

namespace quintet::kernels {
namespace {

using base::DType;
using device::ThreadPool;

enum class Kind : uint8_t { Forward, Dx, Dw };

// Rows of an expert that are worth a team, per thread.
constexpr int64_t kTeamRows = 512;

int64_t rows_of(const GroupedArgs& g, int64_t expert) {
  int64_t rows = 0;
  for (int64_t s = 0; s < g.sources; ++s) rows += g.received[s * g.experts + expert];
  return rows;
}

template <class P>
P* advance(P* base, int64_t elements, DType type) {
  using Byte = std::conditional_t<std::is_const_v<P>, const std::byte, std::byte>;
  return static_cast<Byte*>(base) + elements * size_of(type);
}

// The product of one expert, whose rows begin at `first`.
GemmArgs product(Kind kind, const GroupedArgs& g, int64_t expert, int64_t first, int64_t rows) {
  const int64_t weight = expert * g.out * g.in;
  GemmArgs p{.a_type = g.type, .b_type = g.type, .c_type = g.c_type};
  switch (kind) {
    case Kind::Forward:
      p.trans_b = true;
      p.m = rows, p.n = g.out, p.k = g.in;
      p.a = advance(g.a, first * g.in, g.type), p.lda = g.in;
      p.b = advance(g.b, weight, g.type), p.ldb = g.in;
      p.c = advance(g.c, first * g.out, g.c_type), p.ldc = g.out;
      break;
    case Kind::Dx:
      p.m = rows, p.n = g.in, p.k = g.out;
      p.a = advance(g.a, first * g.out, g.type), p.lda = g.out;
      p.b = advance(g.b, weight, g.type), p.ldb = g.in;
      p.c = advance(g.c, first * g.in, g.c_type), p.ldc = g.in;
      break;
    case Kind::Dw:
      p.trans_a = true;
      p.m = g.out, p.n = g.in, p.k = rows;
      p.a = advance(g.a, first * g.out, g.type), p.lda = g.out;
      p.b = advance(g.b, first * g.in, g.type), p.ldb = g.in;
      p.c = advance(g.c, weight, g.c_type), p.ldc = g.in;
      p.accumulate = g.accumulate;
      break;
  }
  return p;
}

int64_t bound(const GroupedArgs& g, int threads) {
  return std::max({gemm_workspace_bound(g.rows, g.out, g.in, g.type, g.c_type, threads),
                   gemm_workspace_bound(g.rows, g.in, g.out, g.type, g.c_type, threads),
                   gemm_workspace_bound(g.out, g.in, g.rows, g.type, g.c_type, threads)});
}

void run(Kind kind, const GroupedArgs& g, void* workspace, int64_t workspace_bytes, ThreadPool& pool) {
  int64_t total = 0, small = 0;
  for (int64_t e = 0; e < g.experts; ++e) {
    const int64_t rows = rows_of(g, e);
    QUINTET_CHECK(rows >= 0, "expert {} has {} rows", e, rows);
    total += rows;
  }
  QUINTET_CHECK(total <= g.rows, "{} rows were received where at most {} were planned", total, g.rows);
  QUINTET_CHECK(grouped_workspace_bytes(g, pool.threads()) <= workspace_bytes,
                "{} rows of {} experts need {} bytes of scratch, got {}", g.rows, g.experts,
                grouped_workspace_bytes(g, pool.threads()), workspace_bytes);

  const auto is_large = [&](int64_t rows) {
    return pool.threads() == 1 || rows >= kTeamRows * pool.threads();
  };
  int64_t first = 0;
  for (int64_t e = 0; e < g.experts; ++e) {
    const int64_t rows = rows_of(g, e);
    if (is_large(rows))
      gemm(product(kind, g, e, first, rows), workspace, workspace_bytes, pool);
    else
      ++small;
    first += rows;
  }
  if (small == 0) return;
  const int64_t share = bound(g, 1);
  std::atomic<int64_t> next{0};
  pool.parallel_for(0, std::min<int64_t>(small, pool.threads()), 1, [&](int64_t, int64_t, int worker) {
    int64_t begin = 0, at = 0;  // where the rows of expert `at` begin
    for (int64_t e; (e = next.fetch_add(1, std::memory_order_relaxed)) < g.experts;) {
      for (; at < e; ++at) begin += rows_of(g, at);
      const int64_t rows = rows_of(g, e);
      if (!is_large(rows))
        gemm_serial(product(kind, g, e, begin, rows), static_cast<std::byte*>(workspace) + worker * share,
                    share);
    }
  });
}

}  // namespace

int64_t grouped_workspace_bytes(const GroupedArgs& shape, int threads) {
  return std::max(bound(shape, threads), threads * bound(shape, 1));
}

void grouped_linear(const GroupedArgs& args, void* workspace, int64_t workspace_bytes, ThreadPool& pool) {
  run(Kind::Forward, args, workspace, workspace_bytes, pool);
}
void grouped_linear_dx(const GroupedArgs& args, void* workspace, int64_t workspace_bytes, ThreadPool& pool) {
  run(Kind::Dx, args, workspace, workspace_bytes, pool);
}
void grouped_linear_dw(const GroupedArgs& args, void* workspace, int64_t workspace_bytes, ThreadPool& pool) {
  run(Kind::Dw, args, workspace, workspace_bytes, pool);
}

}  // namespace quintet::kernels

// Experts with much work run one after another, each on all threads; the others are distributed over the
// threads, one thread per expert, largest first: a small GEMM takes less time than synchronising a team.
#include "kernels/cpu/matmul/grouped_gemm.h"

#include <algorithm>
#include <atomic>

#include "base/error.h"
#include "kernels/cpu/support/round_up.h"

namespace quintet::kernels {
namespace {

using base::DType;
using device::ThreadPool;

enum class Kind : uint8_t { Forward, Dx, Dw };

// FLOPs per thread: from kTeamFlops up the cost of a team is negligible, below kAloneFlops it exceeds the
// gain.
constexpr double kTeamFlops = 0x1p27, kAloneFlops = 0x1p23;

constexpr int64_t kLine = 64;

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

// The GEMM of one expert, whose rows begin at `first`.
GemmArgs expert_gemm(Kind kind, const GroupedArgs& g, int64_t expert, int64_t first, int64_t rows) {
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
      if (g.addend != nullptr) p.addend = advance(g.addend, first * g.in, g.c_type);
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

// Where each expert's rows begin, and the experts in descending order of rows.
struct Order {
  int64_t* begin;    // experts + 1
  int32_t* experts;  // by rows, then by index

  static int64_t bytes(int64_t experts) { return round_up((experts + 1) * 8 + experts * 4, kLine); }

  Order(const GroupedArgs& g, void* workspace)
      : begin(static_cast<int64_t*>(workspace)), experts(reinterpret_cast<int32_t*>(begin + g.experts + 1)) {
    begin[0] = 0;
    for (int64_t e = 0; e < g.experts; ++e) {
      const int64_t rows = rows_of(g, e);
      QUINTET_CHECK(rows >= 0, "expert {} has {} rows", e, rows);
      begin[e + 1] = begin[e] + rows;
      experts[e] = static_cast<int32_t>(e);
    }
    std::sort(experts, experts + g.experts,
              [this](int32_t x, int32_t y) { return rows(x) != rows(y) ? rows(x) > rows(y) : x < y; });
  }
  int64_t rows(int64_t expert) const { return begin[expert + 1] - begin[expert]; }
};

// How many of the largest experts get all threads: those with much work, and those that would otherwise leave
// the other threads idle at the end for more than about a quarter of the time.
int64_t team_experts(const GroupedArgs& g, const Order& order, int threads) {
  if (threads == 1) return g.experts;
  int64_t left = order.begin[g.experts], count = 0;
  for (; count < g.experts; ++count) {
    const int64_t rows = order.rows(order.experts[count]);
    const double flops = 2.0 * double(rows) * double(g.out) * double(g.in) / threads;
    if (flops < kTeamFlops && (flops < kAloneFlops || rows * (threads - 1) * 4 <= left)) break;
    left -= rows;
  }
  return count;
}

void run(Kind kind, const GroupedArgs& g, void* workspace, int64_t workspace_bytes, ThreadPool& pool) {
  if (g.experts == 0) return;
  const int64_t needed = grouped_workspace_bytes(g, pool.threads());
  QUINTET_CHECK(needed <= workspace_bytes, "{} rows of {} experts need {} bytes of scratch, got {}", g.rows,
                g.experts, needed, workspace_bytes);
  const Order order(g, workspace);
  QUINTET_CHECK(order.begin[g.experts] <= g.rows, "{} rows were received, at most {} were planned",
                order.begin[g.experts], g.rows);
  const auto args = [&](int64_t i) {
    const int64_t e = order.experts[i];
    return expert_gemm(kind, g, e, order.begin[e], order.rows(e));
  };
  std::byte* scratch = static_cast<std::byte*>(workspace) + Order::bytes(g.experts);
  const int64_t team = team_experts(g, order, pool.threads());
  for (int64_t i = 0; i < team; ++i) gemm(args(i), scratch, bound(g, pool.threads()), pool);
  const int64_t share = bound(g, 1);
  std::atomic<int64_t> next{team};
  pool.parallel_for(0, std::min<int64_t>(g.experts - team, pool.threads()), 1,
                    [&](int64_t, int64_t, int worker) {
                      for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < g.experts;)
                        gemm_serial(args(i), scratch + worker * share, share);
                    });
}

}  // namespace

int64_t grouped_workspace_bytes(const GroupedArgs& shape, int threads) {
  return Order::bytes(shape.experts) + std::max(bound(shape, threads), threads * bound(shape, 1));
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

#include "kernels/cpu/experts/router.h"

#include <algorithm>

#include "kernels/cpu/elementwise/pointwise.h"
#include "kernels/cpu/matmul/gemm.h"
#include "kernels/cpu/support/round_up.h"

namespace quintet::kernels::cpu {
namespace {

// Rows widened at a time.
constexpr int64_t kBlock = 256;

constexpr int64_t aligned(int64_t bytes) { return round_up(bytes, kWorkspaceAlignment); }

template <class T>
inline constexpr bool kNarrow = !std::is_same_v<T, Stat<T>>;

template <class T>
inline constexpr base::DType kType = base::DTypeOf<T>::value;

// Scratch of one GEMM, rounded up so that more can follow it.
int64_t gemm_bytes(int64_t m, int64_t n, int64_t k, base::DType t, int threads) {
  return aligned(gemm_workspace_bytes(m, n, k, t, t, threads));
}

}  // namespace

template <class T>
int64_t router_workspace_bytes(const RouterShape& s, int threads) {
  return gemm_workspace_bytes(s.rows, s.routes, s.embed, kType<T>, kType<Stat<T>>, threads);
}

template <class T>
void router(const RouterShape& s, const T* x, const T* w, Stat<T>* logits, void* workspace,
            ThreadPool& pool) {
  gemm({.trans_b = true,
        .m = s.rows,
        .n = s.routes,
        .k = s.embed,
        .a = x,
        .lda = s.embed,
        .b = w,
        .ldb = s.embed,
        .c = logits,
        .ldc = s.routes,
        .a_type = kType<T>,
        .b_type = kType<T>,
        .c_type = kType<Stat<T>>},
       workspace, router_workspace_bytes<T>(s, pool.threads()), pool);
}

// Narrow types: w widened, a block of dx in Stat<T>, scratch of the GEMM.
template <class T>
int64_t router_dx_workspace_bytes(const RouterShape& s, int threads) {
  using S = Stat<T>;
  const int64_t block = kNarrow<T> ? std::min(s.rows, kBlock) : s.rows;
  int64_t product = gemm_bytes(block, s.embed, s.routes, kType<S>, threads);
  if (!kNarrow<T>) return product;
  product = std::max(product, gemm_bytes(s.rows % kBlock, s.embed, s.routes, kType<S>, threads));
  const int64_t size = static_cast<int64_t>(sizeof(S));
  return aligned(s.routes * s.embed * size) + aligned(block * s.embed * size) + product;
}

template <class T>
void router_dx(const RouterShape& s, const Stat<T>* dlogits, const T* w, T* dx, void* workspace,
               ThreadPool& pool) {
  using S = Stat<T>;
  const auto product = [&](const S* dy, const S* weight, S* out, int64_t rows, void* scratch) {
    gemm({.m = rows,
          .n = s.embed,
          .k = s.routes,
          .a = dy,
          .lda = s.routes,
          .b = weight,
          .ldb = s.embed,
          .c = out,
          .ldc = s.embed,
          .a_type = kType<S>,
          .b_type = kType<S>,
          .c_type = kType<S>},
         scratch, gemm_bytes(rows, s.embed, s.routes, kType<S>, pool.threads()), pool);
  };
  if constexpr (!kNarrow<T>) {
    product(dlogits, w, dx, s.rows, workspace);
  } else {
    auto* at = static_cast<std::byte*>(workspace);
    const int64_t size = static_cast<int64_t>(sizeof(S));
    S* wide = reinterpret_cast<S*>(at);
    S* block = reinterpret_cast<S*>(at += aligned(s.routes * s.embed * size));
    void* scratch = at + aligned(std::min(s.rows, kBlock) * s.embed * size);
    cast<T, S>(w, wide, s.routes * s.embed, pool);
    for (int64_t r = 0; r < s.rows; r += kBlock) {
      const int64_t rows = std::min(kBlock, s.rows - r);
      product(dlogits + r * s.routes, wide, block, rows, scratch);
      cast<S, T>(block, dx + r * s.embed, rows * s.embed, pool);
    }
  }
}

// Narrow types: a block of x widened, scratch of the GEMM.
template <class T>
int64_t router_dw_workspace_bytes(const RouterShape& s, int threads) {
  using S = Stat<T>;
  const int64_t block = kNarrow<T> ? std::min(s.rows, kBlock) : s.rows;
  int64_t product = gemm_bytes(s.routes, s.embed, block, kType<S>, threads);
  if (!kNarrow<T>) return product;
  product = std::max(product, gemm_bytes(s.routes, s.embed, s.rows % kBlock, kType<S>, threads));
  return aligned(block * s.embed * static_cast<int64_t>(sizeof(S))) + product;
}

template <class T>
void router_dw(const RouterShape& s, const Stat<T>* dlogits, const T* x, Grad<T>* dw, bool accumulate,
               void* workspace, ThreadPool& pool) {
  using S = Stat<T>;
  const auto product = [&](const S* dy, const S* rows_of_x, int64_t rows, bool add, void* scratch) {
    gemm({.trans_a = true,
          .m = s.routes,
          .n = s.embed,
          .k = rows,
          .a = dy,
          .lda = s.routes,
          .b = rows_of_x,
          .ldb = s.embed,
          .c = dw,
          .ldc = s.embed,
          .a_type = kType<S>,
          .b_type = kType<S>,
          .c_type = kType<S>,
          .accumulate = add},
         scratch, gemm_bytes(s.routes, s.embed, rows, kType<S>, pool.threads()), pool);
  };
  if constexpr (!kNarrow<T>) {
    product(dlogits, x, s.rows, accumulate, workspace);
  } else {
    S* wide = static_cast<S*>(workspace);
    void* scratch = static_cast<std::byte*>(workspace) +
                    aligned(std::min(s.rows, kBlock) * s.embed * static_cast<int64_t>(sizeof(S)));
    if (s.rows == 0) product(dlogits, wide, 0, accumulate, scratch);
    for (int64_t r = 0; r < s.rows; r += kBlock) {
      const int64_t rows = std::min(kBlock, s.rows - r);
      cast<T, S>(x + r * s.embed, wide, rows * s.embed, pool);
      product(dlogits + r * s.routes, wide, rows, accumulate || r > 0, scratch);
    }
  }
}

#define INSTANTIATE(T)                                                          \
  template decltype(router_workspace_bytes<T>) router_workspace_bytes<T>;       \
  template decltype(router<T>) router<T>;                                       \
  template decltype(router_dx_workspace_bytes<T>) router_dx_workspace_bytes<T>; \
  template decltype(router_dx<T>) router_dx<T>;                                 \
  template decltype(router_dw_workspace_bytes<T>) router_dw_workspace_bytes<T>; \
  template decltype(router_dw<T>) router_dw<T>;
INSTANTIATE(double)
INSTANTIATE(float)
INSTANTIATE(Bf16)
INSTANTIATE(F16)
#undef INSTANTIATE

}  // namespace quintet::kernels::cpu

#include "kernels/cpu/norm/norm.h"

#include "kernels/cpu/elementwise/pointwise.h"
#include "kernels/cpu/reduce/chunks.h"
#include "kernels/cpu/support/isa.h"

namespace quintet::kernels::cpu {

QUINTET_SELECT_VARIANT(norm_variants, NormVariants)

template <class T>
void rmsnorm(const T* x, const T* w, T* y, Stat<T>* rstd, int64_t rows, int64_t n, double eps,
             ThreadPool& pool, double offset) {
  variants<T>().rmsnorm(x, w, y, rstd, rows, n, eps, pool, offset);
}

// Two passes over memory; on a GPU it is one.
template <class T>
void add_rmsnorm(const T* x, const T* residual, const T* w, T* sum, T* y, Stat<T>* rstd, int64_t rows,
                 int64_t n, double eps, ThreadPool& pool, double offset) {
  add<T>(x, residual, sum, rows * n, pool);
  rmsnorm<T>(sum, w, y, rstd, rows, n, eps, pool, offset);
}

template <class T>
void rmsnorm_dx(const T* dy, const T* x, const T* w, const Stat<T>* rstd, const T* addend, T* dx,
                int64_t rows, int64_t n, ThreadPool& pool, double offset, T* y) {
  variants<T>().rmsnorm_dx(dy, x, w, rstd, addend, dx, rows, n, pool, offset, y);
}

template <class T>
int64_t rmsnorm_dw_workspace_bytes(int64_t rows, int64_t n) {
  return column_chunks(rows) * n * static_cast<int64_t>(sizeof(Stat<T>));
}

template <class T>
void rmsnorm_dw(const T* dy, const T* x, const Stat<T>* rstd, Grad<T>* dw, bool accumulate, int64_t rows,
                int64_t n, void* workspace, ThreadPool& pool) {
  variants<T>().rmsnorm_dw(dy, x, rstd, dw, accumulate, rows, n, workspace, pool);
}

// The weight's gradient first: dx may be stored over dy.
template <class T>
void rmsnorm_backward(const T* dy, const T* x, const T* w, const Stat<T>* rstd, const T* addend, T* dx, T* y,
                      Grad<T>* dw, bool accumulate, int64_t rows, int64_t n, void* workspace,
                      ThreadPool& pool, double offset) {
  rmsnorm_dw<T>(dy, x, rstd, dw, accumulate, rows, n, workspace, pool);
  rmsnorm_dx<T>(dy, x, w, rstd, addend, dx, rows, n, pool, offset, y);
}

template <class T>
void layernorm(const T* x, const T* w, const T* b, T* y, Stat<T>* mean, Stat<T>* rstd, int64_t rows,
               int64_t n, double eps, ThreadPool& pool) {
  variants<T>().layernorm(x, w, b, y, mean, rstd, rows, n, eps, pool);
}

template <class T>
void add_layernorm(const T* x, const T* residual, const T* w, const T* b, T* sum, T* y, Stat<T>* mean,
                   Stat<T>* rstd, int64_t rows, int64_t n, double eps, ThreadPool& pool) {
  add<T>(x, residual, sum, rows * n, pool);
  layernorm<T>(sum, w, b, y, mean, rstd, rows, n, eps, pool);
}

template <class T>
void layernorm_dx(const T* dy, const T* x, const T* w, const Stat<T>* mean, const Stat<T>* rstd,
                  const T* addend, T* dx, int64_t rows, int64_t n, ThreadPool& pool, const T* b, T* y) {
  variants<T>().layernorm_dx(dy, x, w, mean, rstd, addend, dx, rows, n, pool, b, y);
}

template <class T>
int64_t layernorm_dw_workspace_bytes(int64_t rows, int64_t n) {
  return 2 * rmsnorm_dw_workspace_bytes<T>(rows, n);
}

template <class T>
void layernorm_dw(const T* dy, const T* x, const Stat<T>* mean, const Stat<T>* rstd, Grad<T>* dw, Grad<T>* db,
                  bool accumulate, int64_t rows, int64_t n, void* workspace, ThreadPool& pool) {
  variants<T>().layernorm_dw(dy, x, mean, rstd, dw, db, accumulate, rows, n, workspace, pool);
}

template <class T>
void layernorm_backward(const T* dy, const T* x, const T* w, const T* b, const Stat<T>* mean,
                        const Stat<T>* rstd, const T* addend, T* dx, T* y, Grad<T>* dw, Grad<T>* db,
                        bool accumulate, int64_t rows, int64_t n, void* workspace, ThreadPool& pool) {
  layernorm_dw<T>(dy, x, mean, rstd, dw, db, accumulate, rows, n, workspace, pool);
  layernorm_dx<T>(dy, x, w, mean, rstd, addend, dx, rows, n, pool, b, y);
}

#define INSTANTIATE(T)                                                                \
  template decltype(rmsnorm<T>) rmsnorm<T>;                                           \
  template decltype(add_rmsnorm<T>) add_rmsnorm<T>;                                   \
  template decltype(rmsnorm_dx<T>) rmsnorm_dx<T>;                                     \
  template decltype(rmsnorm_dw_workspace_bytes<T>) rmsnorm_dw_workspace_bytes<T>;     \
  template decltype(rmsnorm_dw<T>) rmsnorm_dw<T>;                                     \
  template decltype(layernorm<T>) layernorm<T>;                                       \
  template decltype(rmsnorm_backward<T>) rmsnorm_backward<T>;                         \
  template decltype(add_layernorm<T>) add_layernorm<T>;                               \
  template decltype(layernorm_dx<T>) layernorm_dx<T>;                                 \
  template decltype(layernorm_dw_workspace_bytes<T>) layernorm_dw_workspace_bytes<T>; \
  template decltype(layernorm_dw<T>) layernorm_dw<T>;                                 \
  template decltype(layernorm_backward<T>) layernorm_backward<T>;
INSTANTIATE(double)
INSTANTIATE(float)
INSTANTIATE(Bf16)
INSTANTIATE(F16)
#undef INSTANTIATE

}  // namespace quintet::kernels::cpu

#include "kernels/cpu/norm/norm.h"

#include "kernels/cpu/reduce/chunks.h"
#include "kernels/cpu/support/isa.h"

namespace quintet::kernels::cpu {

QUINTET_SELECT_VARIANT(norm_variants, NormVariants)

template <class T>
void rmsnorm(const T* x, const T* w, T* y, Stat<T>* rstd, int64_t rows, int64_t n, double eps,
             ThreadPool& pool, double offset) {
  variants<T>().rmsnorm(x, w, y, rstd, rows, n, eps, pool, offset);
}

template <class T>
void rmsnorm_dx(const T* dy, const T* x, const T* w, const Stat<T>* rstd, const T* addend, T* dx, T* y,
                int64_t rows, int64_t n, ThreadPool& pool, double offset) {
  variants<T>().rmsnorm_dx(dy, x, w, rstd, addend, dx, y, rows, n, pool, offset);
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

template <class T>
void layernorm(const T* x, const T* w, const T* b, T* y, Stat<T>* mean, Stat<T>* rstd, int64_t rows,
               int64_t n, double eps, ThreadPool& pool) {
  variants<T>().layernorm(x, w, b, y, mean, rstd, rows, n, eps, pool);
}

template <class T>
void layernorm_dx(const T* dy, const T* x, const T* w, const T* b, const Stat<T>* mean, const Stat<T>* rstd,
                  const T* addend, T* dx, T* y, int64_t rows, int64_t n, ThreadPool& pool) {
  variants<T>().layernorm_dx(dy, x, w, b, mean, rstd, addend, dx, y, rows, n, pool);
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

#define INSTANTIATE(T)                                                                \
  template decltype(rmsnorm<T>) rmsnorm<T>;                                           \
  template decltype(rmsnorm_dx<T>) rmsnorm_dx<T>;                                     \
  template decltype(rmsnorm_dw_workspace_bytes<T>) rmsnorm_dw_workspace_bytes<T>;     \
  template decltype(rmsnorm_dw<T>) rmsnorm_dw<T>;                                     \
  template decltype(layernorm<T>) layernorm<T>;                                       \
  template decltype(layernorm_dx<T>) layernorm_dx<T>;                                 \
  template decltype(layernorm_dw_workspace_bytes<T>) layernorm_dw_workspace_bytes<T>; \
  template decltype(layernorm_dw<T>) layernorm_dw<T>;
INSTANTIATE(double)
INSTANTIATE(float)
INSTANTIATE(Bf16)
INSTANTIATE(F16)
#undef INSTANTIATE

}  // namespace quintet::kernels::cpu

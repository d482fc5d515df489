// RMSNorm and LayerNorm over the last dim of x[rows, n], forward and backward. Rows are tokens, or tokens *
// heads for the norms of q and k. Statistics are kept per row in Stat<T> for the backward pass.
#pragma once

#include "kernels/cpu/support/types.h"

namespace quintet::kernels::cpu {

// rstd = 1 / sqrt(mean(x^2) + eps); y = x * rstd * (offset + w). y may alias x.
template <class T>
void rmsnorm(const T* x, const T* w, T* y, Stat<T>* rstd, int64_t rows, int64_t n, double eps,
             ThreadPool& pool, double offset = 0);
// The same for sum = x + residual, rounded to T, which is written too; sum may alias x or residual.
template <class T>
void add_rmsnorm(const T* x, const T* residual, const T* w, T* sum, T* y, Stat<T>* rstd, int64_t rows,
                 int64_t n, double eps, ThreadPool& pool, double offset = 0);

// With v = offset + w: dx = rstd * (dy * v - x * rstd^2 * mean(dy * v * x)), plus the addend when it is not
// null. dx may alias dy or the addend. `y` (null: none) receives the forward's result again and must overlap
// nothing else.
template <class T>
void rmsnorm_dx(const T* dy, const T* x, const T* w, const Stat<T>* rstd, const T* addend, T* dx,
                int64_t rows, int64_t n, ThreadPool& pool, double offset = 0, T* y = nullptr);

// dw[n] = (or +=) sum over rows of dy * x * rstd.
template <class T>
int64_t rmsnorm_dw_workspace_bytes(int64_t rows, int64_t n);
template <class T>
void rmsnorm_dw(const T* dy, const T* x, const Stat<T>* rstd, Grad<T>* dw, bool accumulate, int64_t rows,
                int64_t n, void* workspace, ThreadPool& pool);

// Both. Workspace as rmsnorm_dw.
template <class T>
void rmsnorm_backward(const T* dy, const T* x, const T* w, const Stat<T>* rstd, const T* addend, T* dx, T* y,
                      Grad<T>* dw, bool accumulate, int64_t rows, int64_t n, void* workspace,
                      ThreadPool& pool, double offset = 0);

// mean and rstd = 1 / sqrt(variance + eps) per row; y = (x - mean) * rstd * w + b. b may be null. y may alias
// x.
template <class T>
void layernorm(const T* x, const T* w, const T* b, T* y, Stat<T>* mean, Stat<T>* rstd, int64_t rows,
               int64_t n, double eps, ThreadPool& pool);
template <class T>
void add_layernorm(const T* x, const T* residual, const T* w, const T* b, T* sum, T* y, Stat<T>* mean,
                   Stat<T>* rstd, int64_t rows, int64_t n, double eps, ThreadPool& pool);

// With g = dy * w and h = (x - mean) * rstd: dx = rstd * (g - mean(g) - h * mean(g * h)), plus the addend
// when it is not null. dx may alias dy or the addend. `y` (null: none) receives the forward's result again
// and must overlap nothing else; only it needs b.
template <class T>
void layernorm_dx(const T* dy, const T* x, const T* w, const Stat<T>* mean, const Stat<T>* rstd,
                  const T* addend, T* dx, int64_t rows, int64_t n, ThreadPool& pool, const T* b = nullptr,
                  T* y = nullptr);

// dw[n] = (or +=) sum of dy * (x - mean) * rstd, db[n] = (or +=) sum of dy. db may be null.
template <class T>
int64_t layernorm_dw_workspace_bytes(int64_t rows, int64_t n);
template <class T>
void layernorm_dw(const T* dy, const T* x, const Stat<T>* mean, const Stat<T>* rstd, Grad<T>* dw, Grad<T>* db,
                  bool accumulate, int64_t rows, int64_t n, void* workspace, ThreadPool& pool);

// Both. Workspace as layernorm_dw.
template <class T>
void layernorm_backward(const T* dy, const T* x, const T* w, const T* b, const Stat<T>* mean,
                        const Stat<T>* rstd, const T* addend, T* dx, T* y, Grad<T>* dw, Grad<T>* db,
                        bool accumulate, int64_t rows, int64_t n, void* workspace, ThreadPool& pool);

// The builds per instruction set (support/isa.h).
template <class T>
struct NormVariants {
  decltype(&cpu::rmsnorm<T>) rmsnorm;
  decltype(&cpu::rmsnorm_dx<T>) rmsnorm_dx;
  decltype(&cpu::rmsnorm_dw<T>) rmsnorm_dw;
  decltype(&cpu::layernorm<T>) layernorm;
  decltype(&cpu::layernorm_dx<T>) layernorm_dx;
  decltype(&cpu::layernorm_dw<T>) layernorm_dw;
};

}  // namespace quintet::kernels::cpu

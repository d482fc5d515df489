// The router's matmul: logits = x w^T with x[rows, embed] and w[routes, embed], and its gradients. Computed
// in Stat<T>; narrower operands are widened first. A row's logits depend on that row and w alone, to the bit,
// so the choice of experts does not depend on which rank computes the row. In bf16 the gradients use 16 bits
// of the mantissa of dlogits, and give NaN where dlogits are infinite.
#pragma once

#include "kernels/cuda/support/types.h"
#include "kernels/routing_shapes.h"

namespace quintet::kernels::cuda {

template <class T>
void router(const RouterShape& s, const T* x, const T* w, Stat<T>* logits, Stream stream);

// dx[rows, embed] = dlogits w
template <class T>
void router_dx(const RouterShape& s, const Stat<T>* dlogits, const T* w, T* dx, Stream stream);

// dw[routes, embed] = (or +=) dlogits^T x, summed by chunks of rows and then over the chunks. D is
// Grad<T>, or Bf16 for T = Bf16.
template <class T>
int64_t router_dw_workspace_bytes(const RouterShape& s);
template <class T, class D>
void router_dw(const RouterShape& s, const Stat<T>* dlogits, const T* x, D* dw, bool accumulate,
               void* workspace, Stream stream);

}  // namespace quintet::kernels::cuda

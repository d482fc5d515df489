// The router's matmul: logits = x w^T with x[rows, embed] and w[routes, embed], and its gradients. Computed
// in Stat<T>; narrower operands are widened first. A row's logits depend on that row and w alone, to the bit,
// so the choice of experts does not depend on which rank computes the row.
#pragma once

#include "kernels/cpu/support/types.h"
#include "kernels/routing_shapes.h"

namespace quintet::kernels::cpu {

template <class T>
int64_t router_workspace_bytes(const RouterShape& s, int threads);
template <class T>
void router(const RouterShape& s, const T* x, const T* w, Stat<T>* logits, void* workspace, ThreadPool& pool);

// dx[rows, embed] = dlogits w
template <class T>
int64_t router_dx_workspace_bytes(const RouterShape& s, int threads);
template <class T>
void router_dx(const RouterShape& s, const Stat<T>* dlogits, const T* w, T* dx, void* workspace,
               ThreadPool& pool);

// dw[routes, embed] = (or +=) dlogits^T x
template <class T>
int64_t router_dw_workspace_bytes(const RouterShape& s, int threads);
template <class T>
void router_dw(const RouterShape& s, const Stat<T>* dlogits, const T* x, Grad<T>* dw, bool accumulate,
               void* workspace, ThreadPool& pool);

}  // namespace quintet::kernels::cpu

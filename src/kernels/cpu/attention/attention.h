// Attention, causal or to both sides, with grouped KV heads, document masks and a sliding window, computed by
// blocks with an online softmax: the score matrix is never materialised.
#pragma once

#include "kernels/attention_geometry.h"
#include "kernels/cpu/support/types.h"

namespace quintet::kernels::cpu {

struct AttentionShape : AttentionGeometry {
  uint64_t dropout_key = 0;
};

// o[rows of q, heads, value_dim] and lse[heads, rows of q] = log of the sum over visible keys of exp(score).
template <class T>
int64_t attention_workspace_bytes(const AttentionShape& shape, int workers);
template <class T>
void attention(const AttentionShape& shape, const T* q, const T* k, const T* v, T* o, Stat<T>* lse,
               void* workspace, ThreadPool& pool);

// Attention over the keys of a sequence part by part: o and lse are the result over all earlier keys and the
// given ones. With o_before (stride o_stride) and lse_before null this is the first part. Each may alias its
// result. Workspace as attention.
template <class T>
void attention_hop(const AttentionShape& shape, const T* q, const T* k, const T* v, const Stat<T>* o_before,
                   const Stat<T>* lse_before, Stat<T>* o, Stat<T>* lse, void* workspace, ThreadPool& pool);

// Overwrites dq, dk, dv from dout (stride o_stride), recomputing the scores from lse. Work is split over
// (sequence, KV head). The workspace grows with workers * (a sequence's rows of q) * (heads / kv_heads) *
// head_dim.
template <class T>
int64_t attention_backward_workspace_bytes(const AttentionShape& shape, int workers);
template <class T>
void attention_backward(const AttentionShape& shape, const T* dout, const T* q, const T* k, const T* v,
                        const T* o, const Stat<T>* lse, T* dq, T* dk, T* dv, void* workspace,
                        ThreadPool& pool);

// The same for one part of the keys, with o and lse over all of them: dk and dv are for the given rows, dq is
// dq_before (of the same stride, null: zero; may be dq) plus this part's contribution.
template <class T>
void attention_hop_backward(const AttentionShape& shape, const T* dout, const T* q, const T* k, const T* v,
                            const T* o, const Stat<T>* lse, const Stat<T>* dq_before, Stat<T>* dq, T* dk,
                            T* dv, void* workspace, ThreadPool& pool);

// The builds per instruction set (support/isa.h).
template <class T>
struct AttentionVariants {
  decltype(&cpu::attention<T>) attention;
  decltype(&cpu::attention_hop<T>) attention_hop;
};

template <class T>
struct AttentionBackwardVariants {
  decltype(&cpu::attention_backward<T>) attention_backward;
  decltype(&cpu::attention_hop_backward<T>) attention_hop_backward;
};

}  // namespace quintet::kernels::cpu

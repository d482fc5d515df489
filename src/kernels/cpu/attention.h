// Causal attention with grouped KV heads, document masks and a sliding window, computed by blocks with an
// online softmax: the score matrix never exists.
#pragma once

#include "kernels/cpu/types.h"

namespace quintet::kernels::cpu {

// Shapes and masks, the same for forward and backward.
//
// Tokens are tokens / seq_len sequences laid one after another. Query row i of a sequence sees key row j of
// the same sequence when j <= i, documents[i] == documents[j], and i - j < window (window 0: no limit). A
// token with a negative document is padding: as a query its output is 0, its lse is -inf and it gives no
// gradient; as a key nobody sees it. Local query head h reads KV head h * kv_heads / heads; heads must be a
// multiple of kv_heads.
struct AttentionShape {
  int64_t tokens = 0;
  int64_t seq_len = 0;  // divides tokens
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;   // of q and k
  int64_t value_dim = 0;  // of v and o
  int64_t q_stride = 0;   // elements from one token's row to the next; heads are contiguous within a row
  int64_t k_stride = 0;
  int64_t v_stride = 0;
  int64_t o_stride = 0;   // of o and do
  int64_t dq_stride = 0;  // of the gradients, read by the backward pass only
  int64_t dk_stride = 0;
  int64_t dv_stride = 0;
  int64_t window = 0;
  double scale = 1.0;                  // scores are scale * q.k
  const int32_t* documents = nullptr;  // [tokens]; null: each sequence is one document

  // Dropout of attention probabilities, off when dropout_p is 0. Probability (query i, key j) of head h is
  // kept when word (positions[j] & 3) of philox(dropout_key, counter words {positions[j] >> 2, positions[i],
  // samples[i], head_offset + h}) is at least dropout_p * 2^32, and is then divided by 1 - dropout_p.
  double dropout_p = 0.0;
  uint64_t dropout_key = 0;
  const int32_t* samples = nullptr;    // [tokens]
  const int32_t* positions = nullptr;  // [tokens]
  int64_t head_offset = 0;             // global index of local query head 0
};

// o[tokens, heads, value_dim] and lse[heads, tokens] = log of the sum over visible keys of exp(score).
template <class T>
int64_t attention_workspace_bytes(const AttentionShape& shape, int workers);
template <class T>
void attention(const AttentionShape& shape, const T* q, const T* k, const T* v, T* o, Stat<T>* lse,
               void* workspace, ThreadPool& pool);

// Overwrites dq, dk, dv from dout (stride o_stride), recomputing the scores from lse. Work is split over
// (sequence, KV head). The workspace grows with workers * seq_len * (heads / kv_heads) * head_dim.
template <class T>
int64_t attention_backward_workspace_bytes(const AttentionShape& shape, int workers);
template <class T>
void attention_backward(const AttentionShape& shape, const T* dout, const T* q, const T* k, const T* v,
                        const T* o, const Stat<T>* lse, T* dq, T* dk, T* dv, void* workspace,
                        ThreadPool& pool);

}  // namespace quintet::kernels::cpu

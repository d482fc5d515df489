// The definition of attention, independent of the backend.
#pragma once

#include "base/row_order.h"

namespace quintet::kernels {

// Sizes, row orders and masks of attention, on every backend, forward and backward. Pointers are in the
// memory of the backend.
//
// The rows of q (and o, lse, documents, samples, positions) are in order q_rows, those of k and v in order
// k_rows: the same sequences, sharded over the same number of ranks, but possibly the rows of other ranks.
// key_documents and key_positions are given for whole sequences, in order k_rows.whole().
//
// With i and j the positions of a query and a key in their common sequence, the query sees the key when
// j <= i (unless both_sides), documents[i] == key_documents[j], and i - j < window (window 0: no limit; only
// with causality). A row with a negative
// document is padding: as a query its output is 0, its lse is -inf and it gives no gradient; as a key it is
// never seen. The same holds for a query that sees none of the given keys. Local query head h reads KV head
// h * kv_heads / heads; heads must be a multiple of kv_heads.
struct AttentionGeometry {
  base::RowOrder q_rows, k_rows;
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
  bool both_sides = false;                 // queries see the keys after them too (CPU kernels)
  double scale = 1.0;                      // scores are scale * q.k
  double soft_cap = 0.0;                   // above 0: cap * tanh(scale * q.k / cap) instead
  const int32_t* documents = nullptr;      // [rows of q]; null, both: each sequence is one document
  const int32_t* key_documents = nullptr;  // [whole sequences]

  // Dropout of attention probabilities, off when dropout_p is 0. Probability (query i, key j) of head h is
  // kept when word (key_positions[j] & 3) of philox(dropout key, counter words {key_positions[j] >> 2,
  // positions[i], samples[i], head_offset + h}) is at least dropout_p * 2^32, and is then divided by
  // 1 - dropout_p.
  double dropout_p = 0.0;
  const int32_t* samples = nullptr;        // [rows of q]
  const int32_t* positions = nullptr;      // [rows of q]
  const int32_t* key_positions = nullptr;  // [whole sequences]
  int64_t head_offset = 0;                 // global index of local query head 0
};

}  // namespace quintet::kernels

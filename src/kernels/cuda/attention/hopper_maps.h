// Tensor maps of q, k, v and their gradients for the Hopper kernels.
#pragma once

#include "kernels/cuda/attention/problem.cuh"
#include "kernels/cuda/support/tensor_map.h"

namespace quintet::kernels::cuda {

// Rows of `heads` heads of `width` elements, copied in boxes of 64 columns, `box_heads` heads and `box_rows`
// rows. Columns past the width are zeros.
template <class T>
CUtensorMap describe_heads(const void* from, int rows, int heads, int width, int64_t stride, int box_heads,
                           int box_rows) {
  TensorDims d;
  d.rank = 3;
  d.sizes[0] = width;
  d.sizes[1] = heads;
  d.sizes[2] = rows;
  d.strides[0] = int64_t{width} * 2;
  d.strides[1] = stride * 2;
  d.box[0] = 64;
  d.box[1] = box_heads;
  d.box[2] = box_rows;
  return describe_tensor(from, base::DTypeOf<T>::value, d, "attention");
}

// Boxes of as many tokens as fill a tile of `rows` rows with the heads of a group, of q and of dout.
template <class T>
CUtensorMap describe_queries(const TiledProblem& p, int rows) {
  return describe_heads<T>(p.q, p.q_count, p.heads, p.head_dim, p.q_stride, p.group, rows / p.group);
}
template <class T>
CUtensorMap describe_dout(const TiledProblem& p, int rows) {
  return describe_heads<T>(p.dout, p.q_count, p.heads, p.value_dim, p.o_stride, p.group, rows / p.group);
}
// Boxes of `rows` rows of one KV head.
template <class T>
CUtensorMap describe_keys(const TiledProblem& p, int rows) {
  return describe_heads<T>(p.k, p.k_count, p.kv_heads, p.head_dim, p.k_stride, 1, rows);
}
template <class T>
CUtensorMap describe_values(const TiledProblem& p, int rows) {
  return describe_heads<T>(p.v, p.k_count, p.kv_heads, p.value_dim, p.v_stride, 1, rows);
}

// Boxes of 32 columns and as many tokens as fill a tile of `rows` rows, of o in f32.
inline CUtensorMap describe_wide(const TiledProblem& p, const void* o, int rows) {
  TensorDims d;
  d.rank = 3;
  d.sizes[0] = p.value_dim;
  d.sizes[1] = p.heads;
  d.sizes[2] = p.q_count;
  d.strides[0] = int64_t{p.value_dim} * 4;
  d.strides[1] = p.o_stride * 4;
  d.box[0] = 32;
  d.box[1] = p.group;
  d.box[2] = rows / p.group;
  return describe_tensor(o, base::DType::F32, d, "attention_hop");
}

// lse and delta of the backward pass, copied `rows` pairs at a time.
inline CUtensorMap describe_stats(const TiledProblem& p, int rows) {
  TensorDims d;
  d.sizes[0] = p.stats_pitch;
  d.sizes[1] = p.kv_heads;
  d.strides[0] = p.stats_pitch * 8;
  d.box[0] = rows;
  d.swizzle = false;
  return describe_tensor(p.stats_out, base::DType::F64, d, "attention_backward");
}

}  // namespace quintet::kernels::cuda

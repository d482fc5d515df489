// Tensor maps of q, k, v and their gradients for the Hopper kernels.
#pragma once

#include "kernels/cuda/attention/problem.cuh"
#include "kernels/cuda/support/tensor_map.h"

namespace quintet::kernels::cuda {

// Rows of `heads` heads of `width` elements, copied in boxes of 64 columns, `box_heads` heads and `box_rows`
// rows.
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

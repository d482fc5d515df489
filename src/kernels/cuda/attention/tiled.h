// Attention on tensor cores for every mask: causal or not, packed documents, windows, cut sequences. bf16 or
// f16 with f32 sums; head sizes that are multiples of 8 up to 256. Kernels for Ampere on serve everything; on
// Hopper others serve heads of 64 and 128 elements without soft caps and dropout (launch_hopper.h).
//
// A mask is run-time data: one interval of key positions per query (kernels/attention_interval.h), found by a
// small kernel in each call. Query heads that share a KV head are rows of one tile. The backward pass is a
// kernel for dq and one for dk and dv, each of which owns what it writes: the same bits in every run.
//
// Documents must be contiguous within a sequence and their ids must not fall, with padding last. Sequences
// that break this are found on the device and served in the same call by attention() and its kin
// (attention.h), without tensor cores. Those know no TiledOptions: with any of them set, such a sequence
// stops the program.
#pragma once

#include "kernels/cuda/attention/attention.h"

namespace quintet::kernels::cuda {

// Beyond AttentionShape; the defaults are what the graph has.
struct TiledOptions {
  bool causal = true;
  double soft_cap = 0;           // scores become cap * tanh(score / cap)
  const float* sinks = nullptr;  // [heads]: one more term exp(sink) of every row's sum, without a value
  float* dsinks = nullptr;       // backward: their gradients

  bool portable = false;  // the kernels for Ampere, also where there are others: for tests

  bool any() const { return !causal || soft_cap > 0 || sinks != nullptr; }
};

class TiledAttention {
 public:
  // Functions of the shape alone.
  static bool suits(const AttentionShape& shape, base::DType type);
  static int64_t workspace_bytes(const AttentionShape& shape, bool backward);
  // Whether, on the present GPU, forward() was measured to be faster than cuDNN where a sequence is one
  // document (docs/benchmarks/cuda-kernels.md): on Hopper, heads of 64 from 4096 rows a sequence on, of 128
  // from 8192 on.
  static bool leads(const AttentionShape& shape);

  // As attention() and attention_hop() of attention.h: O is T or float. What came before is null in the first
  // hop, and may be the memory of its result.
  template <class T, class O>
  static void forward(const AttentionShape& shape, const TiledOptions& options, const T* q, const T* k,
                      const T* v, const float* o_before, const float* lse_before, O* o, float* lse,
                      void* workspace, Stream stream);
  template <class T, class O>
  static void backward(const AttentionShape& shape, const TiledOptions& options, const T* dout, const T* q,
                       const T* k, const T* v, const T* o, const float* lse, const float* dq_before, O* dq,
                       T* dk, T* dv, void* workspace, Stream stream);
};

}  // namespace quintet::kernels::cuda

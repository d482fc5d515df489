// Attention on tensor cores for every mask: causal or not, packed documents, windows, sharded sequences. bf16
// or f16 with f32 sums; head sizes that are multiples of 8 up to 256. Kernels for Ampere on handle all cases;
// on Hopper others handle heads of 64 and 128 elements without soft caps and dropout (launch_hopper.h).
//
// A mask is run-time data: one interval of key positions per query (kernels/attention_interval.h), found by a
// small kernel in each call. Query heads that share a KV head are rows of one tile. The backward pass is one
// kernel for dq and one for dk and dv, each of which owns what it writes: the same bits in every run. On
// Hopper one kernel computes all three where the shape does not ask for that (hopper_fused.cuh).
//
// Documents must be contiguous within a sequence and their ids non-decreasing, with padding last. Sequences
// that break this are found on the device and handled in the same call by attention() and its variants
// (attention.h), without tensor cores. Those do not support TiledOptions: with any of them set, such a
// sequence aborts the program.
#pragma once

#include "kernels/cuda/attention/attention.h"

namespace quintet::kernels::cuda {

// Options that AttentionShape lacks, but for soft_cap, which callers set from it; the graph uses the
// defaults.
struct TiledOptions {
  bool causal = true;
  double soft_cap = 0;           // scores become cap * tanh(score / cap)
  const float* sinks = nullptr;  // [heads]: one more term exp(sink) of every row's sum, without a value
  float* dsinks = nullptr;       // backward: their gradients

  bool portable = false;  // use the Ampere kernels even if there are others: for tests

  bool any() const { return !causal || soft_cap > 0 || sinks != nullptr; }
};

class TiledAttention {
 public:
  // Functions of the shape alone.
  static bool suits(const AttentionShape& shape, base::DType type);
  static int64_t workspace_bytes(const AttentionShape& shape, bool backward);
  // Whether, on the present GPU, a pass was measured to be faster than cuDNN's where a sequence is one
  // document (docs/benchmarks/cuda-kernels.md): on Hopper both passes with heads of 64 from 4096 rows per
  // sequence on, and forward() with heads of 128 from 8192.
  static bool leads(const AttentionShape& shape, bool backward);

  // As attention() and attention_hop() of attention.h: O is T or float. Earlier results are null in the
  // first hop; they may alias the new ones.
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

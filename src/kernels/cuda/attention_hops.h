// attention_hop and attention_hop_backward (attention.h) through cuDNN, for sequences of one document each.
//
// A hop is one run of the library over the part of its queries and keys that meet (kernels/attention_part.h),
// and a kernel of ours that joins the run with the hops before. The library gives a hop's o and its share of
// dq in T: each is rounded to 16 bits once, and then merged or added in f32. dk and dv are shares in any
// case.
#pragma once

#include "kernels/cuda/attention.h"

namespace quintet::kernels::cuda {

class AttentionHops {
 public:
  explicit AttentionHops(Attention& library) : library_(library) {}

  // As of Attention, for problems that Attention::suits() with dense masks. The scratch is the same for every
  // hop and ring rank.
  static int64_t workspace_bytes(const AttentionShape& shape, bool backward);
  bool prepare(const AttentionShape& shape, bool backward, int64_t workspace_bytes, base::DType type);

  // T is Bf16 or F16. What came before, null in the first hop, may be the memory of its result.
  template <class T>
  void forward(const AttentionShape& shape, const T* q, const T* k, const T* v, const float* o_before,
               const float* lse_before, float* o, float* lse, void* workspace, int64_t workspace_bytes,
               Stream stream);
  template <class T>
  void backward(const AttentionShape& shape, const T* dout, const T* q, const T* k, const T* v, const T* o,
                const float* lse, const float* dq_before, float* dq, T* dk, T* dv, void* workspace,
                int64_t workspace_bytes, Stream stream);

 private:
  Attention& library_;
};

}  // namespace quintet::kernels::cuda

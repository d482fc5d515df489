// Attention through cuDNN where rows lie as context ranks have them: attention_hop and attention_hop_backward
// (attention.h), and attention with the keys of all ranks.
//
// The library runs once over the queries and keys that meet (kernels/attention_part.h). A kernel of ours then
// joins the run with the hops before. The library gives o and the share of dq in T: of each hop they are
// rounded to 16 bits once, and merged or added in f32. dk and dv are shares in any case.
//
// Rows of several neighbouring ranks in one buffer are first copied to where they ascend, in the scratch:
// q, k and v, backward o and do too. Queries of one ring rank with the keys of all meet them hop by hop, with
// o and dq of the hops before in f32 in the scratch.
#pragma once

#include "kernels/cuda/attention/attention.h"

namespace quintet::kernels::cuda {

class AttentionHops {
 public:
  explicit AttentionHops(Attention& library) : library_(library) {}

  // How many hops the keys at hand are, and the problem of the keys of one ring rank. Its rows of k and v lie
  // source * q_rows.rows() behind the first.
  static int64_t hops(const AttentionShape& shape);
  static AttentionShape hop_shape(const AttentionShape& shape, int64_t source);
  // The problem that the library gets for a hop: rows ascending.
  static AttentionShape library_shape(const AttentionShape& hop);

  // As of Attention. The scratch is the same for every hop and ring rank.
  static bool suits(const AttentionShape& shape, AttentionMasks masks, base::DType type);
  static int64_t workspace_bytes(const AttentionShape& shape, AttentionMasks masks, bool backward);
  bool prepare(const AttentionShape& shape, AttentionMasks masks, bool backward, int64_t workspace_bytes,
               base::DType type);

  // T is Bf16 or F16, O float or T. What came before is null in the first hop; it may be the memory of its
  // result. Documents masks want all keys at hand.
  template <class T, class O>
  void forward(const AttentionShape& shape, AttentionMasks masks, const T* q, const T* k, const T* v,
               const float* o_before, const float* lse_before, O* o, float* lse, void* workspace,
               int64_t workspace_bytes, Stream stream);
  template <class T, class O>
  void backward(const AttentionShape& shape, AttentionMasks masks, const T* dout, const T* q, const T* k,
                const T* v, const T* o, const float* lse, const float* dq_before, O* dq, T* dk, T* dv,
                void* workspace, int64_t workspace_bytes, Stream stream);

 private:
  Attention& library_;
};

}  // namespace quintet::kernels::cuda

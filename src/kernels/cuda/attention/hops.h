// Attention through cuDNN for rows in the order of context ranks: attention_hop and attention_hop_backward
// (attention.h), and attention with the keys of all ranks.
//
// cuDNN runs once over the queries and keys that meet (kernels/attention_part.h). A native kernel then merges
// the result with the earlier hops. cuDNN returns o and its contribution to dq in T: those of each hop are
// rounded to 16 bits once, then merged or added in f32. dk and dv are per hop in any case.
//
// Rows of several neighbouring ranks in one buffer are first copied into ascending order, in the scratch: q,
// k and v, in the backward pass o and do too. Queries of one ring rank with the keys of all ranks meet them
// hop by hop, with o and dq of earlier hops in f32 in the scratch.
#pragma once

#include "kernels/cuda/attention/attention.h"

namespace quintet::kernels::cuda {

class AttentionHops {
 public:
  explicit AttentionHops(Attention& library) : library_(library) {}

  // How many hops the given keys make, and the problem of one ring rank's keys. Its rows of k and v start
  // source * q_rows.rows() after the first.
  static int64_t hops(const AttentionShape& shape);
  static AttentionShape hop_shape(const AttentionShape& shape, int64_t source);
  // The problem that cuDNN gets for a hop: rows ascending.
  static AttentionShape library_shape(const AttentionShape& hop);

  // As in Attention. The scratch is the same for every hop and ring rank.
  static bool suits(const AttentionShape& shape, AttentionMasks masks, base::DType type);
  static int64_t workspace_bytes(const AttentionShape& shape, AttentionMasks masks, bool backward);
  bool prepare(const AttentionShape& shape, AttentionMasks masks, bool backward, int64_t workspace_bytes,
               base::DType type);

  // T is Bf16 or F16, O float or T. Earlier results are null in the first hop; they may alias the new ones.
  // Document masks need all keys in one call.
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

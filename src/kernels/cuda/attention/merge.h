// Merges a hop of ring attention with the earlier hops: results are weighted by their shares of the sums of
// exponentials, contributions to dq are added. Rows that take no part (kernels/attention_part.h) are
// unchanged, or zero. Earlier results are null in the first hop; they may alias the new ones.
#pragma once

#include "kernels/attention_part.h"
#include "kernels/cuda/attention/attention.h"

namespace quintet::kernels::cuda {

// T is Bf16 or F16, O float or T. The hop's rows ascend, `hop_stride` elements apart; head sizes, up to 256,
// and strides are multiples of 8.
template <class T, class O>
void merge_hop(const AttentionShape& hop, const AttentionPart::Rows& part, const T* hop_o, int64_t hop_stride,
               const float* hop_lse, const float* o_before, const float* lse_before, O* o, float* lse,
               Stream stream);
template <class T, class O>
void add_hop_dq(const AttentionShape& hop, const AttentionPart::Rows& part, const T* share,
                int64_t share_stride, const float* dq_before, O* dq, Stream stream);

}  // namespace quintet::kernels::cuda

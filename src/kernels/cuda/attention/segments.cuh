// Runs of equal documents as sequences of variable length, for cuDNN, and the rows that it does not write.
#pragma once

#include "kernels/cuda/support/types.h"

namespace quintet::kernels::cuda {

// Device arrays: the lengths of `most` segments, and for five tensors where each segment begins, in elements
// (most + 1 numbers; those after the last segment point one past the end).
struct Segments {
  int64_t most = 0;
  int32_t* lengths = nullptr;
  int32_t *q = nullptr, *k = nullptr, *v = nullptr, *o = nullptr, *stats = nullptr;
  // 1 where there are more runs than `most`, or documents decrease within a sequence or follow padding: then
  // all lengths are 0.
  int32_t* refused = nullptr;

  // In memory of segments_bytes(most).
  static Segments at(void* memory, int64_t most);
};

struct SegmentStrides {
  int64_t q = 0, k = 0, v = 0, o = 0, stats = 0;  // elements per token
};

// documents[sequences * seq_len], negative for padding.
void find_segments(const int32_t* documents, int64_t sequences, int64_t seq_len,
                   const SegmentStrides& strides, const Segments& segments, Stream stream);

// Fills in the results that a pass over the segments does not write, unless it was refused: lse[heads,
// tokens] from stats[tokens, heads], with -inf for padding, and zeros in padding rows of o (16-bit elements
// of any type).
void finish_forward(const int32_t* documents, int64_t tokens, int64_t heads, const float* stats,
                    const int32_t* refused, float* lse, uint16_t* o, int64_t o_stride, int64_t o_width,
                    Stream stream);
// packed[sequences, heads, rows] from a corner of lse, with heads `stride` apart and sequences `pitch` apart.
void pack_stats(const float* lse, int64_t stride, int64_t pitch, int64_t heads, int64_t sequences,
                int64_t rows, float* packed, Stream stream);
// stats[tokens, heads] from lse[heads, tokens].
void begin_backward(int64_t tokens, int64_t heads, const float* lse, float* stats, Stream stream);
// `width` elements of every row; rows are `stride` apart.
struct RowPart {
  uint16_t* data = nullptr;
  int64_t stride = 0, width = 0;
};
// Zeroes the padding rows of dq, dk and dv, unless refused.
void finish_backward(const int32_t* documents, int64_t tokens, const int32_t* refused, const RowPart& dq,
                     const RowPart& dk, const RowPart& dv, Stream stream);

}  // namespace quintet::kernels::cuda

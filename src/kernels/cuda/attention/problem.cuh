// Launch parameters and helpers of the tiled attention kernels: rows of a tile, their intervals, loading and
// storing.
#pragma once

#include "kernels/attention_interval.h"
#include "kernels/cuda/attention/mma.cuh"
#include "kernels/cuda/attention/tile_sizes.h"
#include "kernels/cuda/attention/tiled.h"
#include "kernels/cuda/support/launch.cuh"
#include "kernels/cuda/support/philox.cuh"

namespace quintet::kernels::cuda {

inline constexpr int kWarps = 4, kTiledThreads = 32 * kWarps;
inline constexpr float kLog2E = 1.4426950408889634f;

// The tensors are untyped, so that all kernels share one struct. `wide`: o and dq are f32.
struct TiledProblem {
  RowRuns q_rows, k_rows;
  int q_count, k_count;  // rows
  HeadPacking packing;   // of the queries
  int heads, kv_heads, group, head_dim, value_dim;
  int64_t q_stride, k_stride, v_stride, o_stride, dq_stride, dk_stride, dv_stride;
  MaskRule rule;
  const Span* documents;   // [sequences, seq_len] spans; null: a sequence is one document
  const int32_t* refused;  // [sequences]: where not 0, nothing is done; null: never
  const uint32_t* order;   // tiles by descending cost; null: by number, the last first
  const int* visible;      // how many tiles of `order` need work; null: all of them
  float scale, soft_cap;   // soft_cap 0: none
  bool wide;
  const float* sinks;  // [heads], null: none
  uint64_t threshold;  // of dropout; 0: none
  float kept;          // 1 / (1 - p)
  const uint64_t* dropout_key;
  const int32_t *samples, *positions, *key_positions;
  uint32_t head_offset;

  const void *q, *k, *v, *o, *dout;
  const float *lse, *delta;
  const float *o_before, *lse_before, *dq_before;
  void *o_out, *dq, *dk, *dv;
  bool in_place;  // o, or dq of the backward pass, in f32: rows that see nothing are left as they are
  float *lse_out, *delta_out;
  // [kv_heads, stats_pitch]: lse in units of log2 and delta per row of packed heads, in pairs of rows: two
  // lse, then two delta.
  float* stats_out;
  int64_t stats_pitch;
  int kv_begin, kv_span;  // Hopper's backward pass: the KV heads [kv_begin, kv_begin + kv_span) of a launch
  float* dq_sum;          // the fused pass: sums of their dq, in the order of hopper_fused.cuh
  int* items_taken;       // Hopper's kernels over key tiles: items handed out after each block's first

  bool extra() const { return soft_cap > 0 || threshold > 0; }
  __device__ __forceinline__ bool idle(int sequence) const {
    return refused != nullptr && refused[sequence] != 0;
  }
  __device__ __forceinline__ Span document(int sequence, int position) const {
    return documents != nullptr ? documents[sequence * k_rows.seq_len + position] : Span{0, k_rows.seq_len};
  }
  __device__ __forceinline__ Span keys(int sequence, int position) const {
    return keys_of(position, document(sequence, position), rule);
  }
  __device__ __forceinline__ Span queries(int sequence, int position) const {
    return queries_of(position, document(sequence, position), rule);
  }
  __device__ __forceinline__ int key_position(int sequence, int position) const {
    return key_positions[k_rows.row_in_whole(sequence, position)];
  }
  // 0 or 1 / (1 - p), for a key by its index in the dropout positions.
  __device__ __forceinline__ float keep(int query_row, int head, int key_place) const {
    return keeps(dropout_words(dropout_row(query_row, head), key_place), key_place) ? kept : 0.0f;
  }
  // The same in parts. A draw serves four neighbouring keys of a query row.
  struct DropoutRow {
    uint32_t position, sample, head;
  };
  __device__ __forceinline__ DropoutRow dropout_row(int query_row, int head) const {
    return {static_cast<uint32_t>(positions[query_row]), static_cast<uint32_t>(samples[query_row]),
            head_offset + static_cast<uint32_t>(head)};
  }
  __device__ __forceinline__ Words<4> dropout_words(const DropoutRow& row, int key_place) const {
    return philox(*dropout_key, static_cast<uint32_t>(key_place) >> 2, row.position, row.sample, row.head);
  }
  __device__ __forceinline__ bool keeps(const Words<4>& words, int key_place) const {
    const auto column = static_cast<uint32_t>(key_place);
    const uint32_t low = column & 1 ? words.w[1] : words.w[0], high = column & 1 ? words.w[3] : words.w[2];
    return (column & 2 ? high : low) >= threshold;
  }
};

// A tile of up to `size` consecutive rows of one run, by number. Numbers ascend with the position within each
// sequence, and sequences alternate, so that tiles of equal cost are launched together.
struct RowTile {
  int sequence, row, position, count;
};
__device__ __forceinline__ RowTile row_tile(const RowRuns& r, int size, int number) {
  const int per_run = (r.length + size - 1) / size;
  const int sequence = number % r.sequences, in_sequence = number / r.sequences;
  const int index = in_sequence / per_run, offset = in_sequence % per_run * size;
  const RowRuns::Run run = r.run(sequence, index);
  return {sequence, run.row + offset, run.position + offset, lesser(size, r.length - offset)};
}

// Rows [0, valid) of a tile from global memory, zeros for the others; `from` returns the address of a row.
// Columns from `width` on are zeros.
template <int kWidth, int kRows, class T, class From>
__device__ __forceinline__ void load_rows(uint32_t tile, int valid, int width, const From& from) {
  constexpr int kVectors = SharedTile<kWidth>::kVectors;
  static_assert(kRows * kVectors % kTiledThreads == 0);
#pragma unroll
  for (int i = 0; i < kRows * kVectors / kTiledThreads; ++i) {
    const int at = static_cast<int>(threadIdx.x) + i * kTiledThreads, row = at / kVectors,
              vector = at % kVectors;
    const bool inside = row < valid && vector * 8 < width;
    const T* const source = from(inside ? row : 0) + (inside ? vector * 8 : 0);
    copy_or_zero(tile + SharedTile<kWidth>::offset(row, vector), source, inside);
  }
}
// The same for rows that are `stride` elements apart. A running pointer keeps addresses out of registers
// between blocks.
template <int kWidth, int kRows, class T>
__device__ __forceinline__ void load_strided(uint32_t tile, int valid, int width, const T* from,
                                             int64_t stride) {
  constexpr int kVectors = SharedTile<kWidth>::kVectors, kStep = kTiledThreads / kVectors;
  if constexpr (kTiledThreads % kVectors == 0 && kStep % 8 == 0) {
    const int row = static_cast<int>(threadIdx.x) / kVectors,
              vector = static_cast<int>(threadIdx.x) % kVectors;
    const T* source = from + row * stride + vector * 8;
    const uint32_t to = tile + SharedTile<kWidth>::offset(row, vector);
    const int rows = vector * 8 < width ? valid - row : 0;
#pragma unroll
    for (int i = 0; i < kRows; i += kStep, source += kStep * stride)
      copy_or_zero(to + static_cast<uint32_t>(i * SharedTile<kWidth>::kPitch), source, i < rows);
  } else {
    load_rows<kWidth, kRows, T>(tile, valid, width, [&](int r) { return from + r * stride; });
  }
}

// Four lanes with two columns of each of four groups of eight become four lanes with one group each.
__device__ __forceinline__ void transpose_quad(uint32_t (&p)[4], int lane) {
#pragma unroll
  for (int step = 1; step <= 2; step *= 2) {
    const bool upper = (lane & step) != 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if ((i & step) != 0) continue;
      const uint32_t other = __shfl_xor_sync(0xffffffffu, upper ? p[i] : p[i + step], step);
      (upper ? p[i] : p[i + step]) = other;
    }
  }
}

// Stores half the accumulators: row lane / 4 (half = 0) or lane / 4 + 8, times `factor`, rounded to T.
// `width` is the number of columns to store. All lanes take part; `inside` says whether the row is stored.
template <class T, int kTiles>
__device__ __forceinline__ void store_row(const float (&acc)[kTiles][4], int half, float factor, T* to,
                                          int width, bool inside) {
  static_assert(kTiles % 4 == 0);
  const int lane = static_cast<int>(threadIdx.x) % 32, quarter = lane % 4;
#pragma unroll
  for (int j = 0; j < kTiles; j += 4) {
    uint32_t p[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      p[i] = word_of<T>(acc[j + i][2 * half] * factor, acc[j + i][2 * half + 1] * factor);
    transpose_quad(p, lane);
    const int column = (j + quarter) * 8;
    if (inside && column < width) *reinterpret_cast<uint4*>(to + column) = make_uint4(p[0], p[1], p[2], p[3]);
  }
}
// The same in f32, plus share * before where `before` is not null. The product is rounded before the sum, as
// in add_wide_row().
template <int kTiles>
__device__ __forceinline__ void store_wide_row(const float (&acc)[kTiles][4], int half, float factor,
                                               const float* before, float share, float* to, int width,
                                               bool inside) {
  const int quarter = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
    const int column = j * 8 + quarter * 2;
    if (!inside || column >= width) continue;
    float2 x = make_float2(factor == 0.0f ? 0.0f : acc[j][2 * half] * factor,
                           factor == 0.0f ? 0.0f : acc[j][2 * half + 1] * factor);
    if (before != nullptr) {
      const float2 old = *reinterpret_cast<const float2*>(before + column);
      x.x = fmaf(old.x, share, x.x);
      x.y = fmaf(old.y, share, x.y);
    }
    *reinterpret_cast<float2*>(to + column) = x;
  }
}

// The final step of a forward row: the factor of its weighted values, the share of the earlier result, and
// its lse. `level` is the maximum of its scores in units of log2, `sum` the sum of their exponentials
// relative to it.
struct RowResult {
  float factor, share, lse;
};
// The earlier lse of a row of a head, to be loaded long before it is needed.
__device__ __forceinline__ float earlier_lse(const TiledProblem& p, bool inside, int head, int row) {
  return p.lse_before != nullptr && inside ? p.lse_before[static_cast<int64_t>(head) * p.q_count + row]
                                           : -INFINITY;
}
__device__ __forceinline__ RowResult row_result(const TiledProblem& p, bool inside, int head, float earlier,
                                                float level, float sum) {
  float factor = 1.0f;
  if (p.sinks != nullptr && inside) {
    const float sink = p.sinks[head] * kLog2E, higher = fmaxf(level, sink);
    factor = exp2_fast(level - higher);
    sum = sum * factor + exp2_fast(sink - higher);
    level = higher;
  }
  const bool unseen = level == -INFINITY && sum == 0.0f;  // NaN and infinite scores propagate
  constexpr float kLn2 = 0.6931471805599453f;
  RowResult r{unseen ? 0.0f : factor / sum, 0.0f, unseen ? -INFINITY : (level + log2f(sum)) * kLn2};
  if (p.lse_before == nullptr || !inside) return r;
  if (unseen) {
    r.share = 1.0f;
    r.lse = earlier;
  } else if (earlier != -INFINITY) {
    const float higher = fmaxf(earlier, r.lse),
                both = higher + logf(expf(earlier - higher) + expf(r.lse - higher));
    r.share = expf(earlier - both);
    r.factor *= expf(r.lse - both);
    r.lse = both;
  }
  return r;
}

// Where TiledProblem::stats_out has lse of a row of packed heads of a KV head; its delta is two floats later.
__host__ __device__ __forceinline__ int64_t stats_index(int64_t packed_row) {
  return (packed_row & ~int64_t{1}) * 2 + (packed_row & 1);
}
__device__ __forceinline__ void store_stats(const TiledProblem& p, int kv_head, int64_t packed_row, float lse,
                                            float delta) {
  float* const to = p.stats_out + kv_head * p.stats_pitch * 2 + stats_index(packed_row);
  to[0] = lse;
  to[2] = delta;
}

extern __shared__ __align__(1024) unsigned char tiled_memory[];

}  // namespace quintet::kernels::cuda

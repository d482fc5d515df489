// Shared by the native attention kernels: row order, visibility, tiles in shared memory.
//
// A block works on kTile query rows and kTile key rows at a time, each within one run (base/row_order.h), in
// Stat<T> arithmetic. 256 threads: lane j of a warp handles key j where scores are computed, warps share the
// rows. Tiles have kTile = 32 rows, or fewer where heads are too large for shared memory.
#pragma once

#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/support/launch.cuh"
#include "kernels/cuda/support/philox.cuh"
#include "kernels/cuda/support/thread_group.cuh"

namespace quintet::kernels::cuda {

inline constexpr int kTileThreads = 256, kTileWarps = kTileThreads / 32;
inline constexpr int64_t kTileBytes = 96 << 10;  // shared memory limit while a smaller tile exists

// base::RowOrder for the device.
struct TileRows {
  int seq_len, sequences, ranks, first, count, length, runs;

  explicit TileRows(const base::RowOrder& r)
      : seq_len(static_cast<int>(r.seq_len)),
        sequences(static_cast<int>(r.sequences)),
        ranks(static_cast<int>(r.ranks)),
        first(static_cast<int>(r.first)),
        count(static_cast<int>(r.count)),
        length(static_cast<int>(r.run_length())),
        runs(static_cast<int>(r.runs())) {}

  __device__ __forceinline__ void run(int sequence, int index, int64_t& row, int& position) const {
    if (ranks == 1) {
      row = static_cast<int64_t>(sequence) * seq_len;
      position = 0;
      return;
    }
    const bool second = index >= count;
    const int at = second ? 2 * count - 1 - index : index;
    const int chunk = second ? 2 * ranks - 1 - (first + at) : first + at;
    row = ((static_cast<int64_t>(at) * sequences + sequence) * 2 + (second ? 1 : 0)) * length;
    position = chunk * length;
  }
  // The row of a position in a buffer that holds the rows of all ranks.
  __device__ __forceinline__ int64_t row_in_whole(int sequence, int position) const {
    if (ranks == 1) return static_cast<int64_t>(sequence) * seq_len + position;
    const int index = position / length;
    const bool second = index >= ranks;
    const int at = second ? 2 * ranks - 1 - index : index;
    return ((static_cast<int64_t>(at) * sequences + sequence) * 2 + (second ? 1 : 0)) * length +
           position % length;
  }
};

// Consecutive rows of one run: `row` is the first one's index in its buffer, `index` that in the arrays of
// documents and positions.
struct Tile {
  int64_t row, index;
  int position, rows;
};

struct TileShape {
  TileRows q, k;
  int heads, group, head_dim, value_dim, window;
  int64_t q_stride, k_stride, v_stride, o_stride, dq_stride, dk_stride, dv_stride, q_count;
  double scale, soft_cap;  // soft_cap 0: none
  const int32_t *documents, *key_documents, *needed;
  bool needed_each;
  bool drops;
  double kept;         // 1 / (1 - p)
  uint64_t threshold;  // words at or above it are kept
  const uint64_t* key;
  const int32_t *samples, *positions, *key_positions;
  uint32_t head_offset;

  explicit TileShape(const AttentionShape& s)
      : q(s.q_rows),
        k(s.k_rows),
        heads(static_cast<int>(s.heads)),
        group(static_cast<int>(s.kv_heads > 0 ? s.heads / s.kv_heads : 1)),
        head_dim(static_cast<int>(s.head_dim)),
        value_dim(static_cast<int>(s.value_dim)),
        window(static_cast<int>(s.window)),
        q_stride(s.q_stride),
        k_stride(s.k_stride),
        v_stride(s.v_stride),
        o_stride(s.o_stride),
        dq_stride(s.dq_stride),
        dk_stride(s.dk_stride),
        dv_stride(s.dv_stride),
        q_count(s.q_rows.rows()),
        scale(s.scale),
        soft_cap(s.soft_cap),
        documents(s.documents),
        key_documents(s.key_documents),
        needed(s.needed),
        needed_each(s.needed_each),
        drops(s.dropout_p > 0),
        kept(1.0 / (1.0 - s.dropout_p)),
        threshold(keep_threshold(s.dropout_p)),
        key(s.dropout_key),
        samples(s.samples),
        positions(s.positions),
        key_positions(s.key_positions),
        head_offset(static_cast<uint32_t>(s.head_offset)) {}

  __device__ __forceinline__ bool idle(int sequence) const {
    return needed != nullptr && needed[needed_each ? sequence : 0] == 0;
  }
  __device__ __forceinline__ Tile query_tile(int sequence, int run, int offset, int tile) const {
    Tile t;
    q.run(sequence, run, t.row, t.position);
    t.row += offset;
    t.index = t.row;
    t.position += offset;
    t.rows = q.length - offset < tile ? q.length - offset : tile;
    return t;
  }
  __device__ __forceinline__ Tile key_tile(int sequence, int run, int offset, int tile) const {
    Tile t;
    k.run(sequence, run, t.row, t.position);
    t.row += offset;
    t.position += offset;
    t.index = k.row_in_whole(sequence, t.position);
    t.rows = k.length - offset < tile ? k.length - offset : tile;
    return t;
  }
  // Whether causality or the window hide every key of one tile from every query of the other.
  __device__ __forceinline__ bool apart(const Tile& query, const Tile& keys) const {
    return keys.position >= query.position + query.rows ||
           (window > 0 && query.position - (keys.position + keys.rows - 1) >= window);
  }
  __device__ __forceinline__ bool sees(const Tile& query, int i, const Tile& keys, int j) const {
    if (i >= query.rows || j >= keys.rows) return false;
    const int at = query.position + i, from = keys.position + j;
    if (from > at || (window > 0 && at - from >= window)) return false;
    if (documents == nullptr) return true;
    const int32_t own = documents[query.index + i];
    return own >= 0 && own == key_documents[keys.index + j];
  }
  // The score of a raw q.k, and its derivative by scale * q.k.
  template <class S>
  struct Score {
    S value, slope;
  };
  template <class S>
  __device__ __forceinline__ Score<S> score(S raw) const {
    const S scaled = raw * static_cast<S>(scale);
    if (soft_cap == 0) return {scaled, S(1)};
    const S t = tanh(scaled / static_cast<S>(soft_cap));
    return {static_cast<S>(soft_cap) * t, S(1) - t * t};
  }
  // 0 or 1 / (1 - p).
  template <class S>
  __device__ __forceinline__ S dropout(const Tile& query, int i, const Tile& keys, int j, int head) const {
    const auto column = static_cast<uint32_t>(key_positions[keys.index + j]);
    const Words<4> words =
        philox(*key, column >> 2, static_cast<uint32_t>(positions[query.index + i]),
               static_cast<uint32_t>(samples[query.index + i]), head_offset + static_cast<uint32_t>(head));
    const uint32_t which = column & 3;
    const uint32_t word = which == 0   ? words.w[0]
                          : which == 1 ? words.w[1]
                          : which == 2 ? words.w[2]
                                       : words.w[3];
    return word >= threshold ? static_cast<S>(kept) : S(0);
  }
};

// Rows of a tile in shared memory are width + 1 apart: lanes that handle rows have no bank conflicts.
template <class S, class T>
__device__ __forceinline__ void load_tile(const T* from, int64_t stride, int rows, int width, int tile,
                                          S* to) {
  for (int at = static_cast<int>(threadIdx.x); at < tile * width; at += kTileThreads) {
    const int r = at / width, d = at % width;
    to[r * (width + 1) + d] = r < rows ? static_cast<S>(load<1>(from + r * stride + d).v[0]) : S(0);
  }
}
template <class S>
__device__ __forceinline__ void clear_tile(int width, int tile, S* to) {
  for (int at = static_cast<int>(threadIdx.x); at < tile * (width + 1); at += kTileThreads) to[at] = S(0);
}
// to = before + from; before may be null.
template <class S, class O>
__device__ __forceinline__ void store_tile(const S* from, int rows, int width, const O* before, O* to,
                                           int64_t stride) {
  for (int at = static_cast<int>(threadIdx.x); at < rows * width; at += kTileThreads) {
    const int r = at / width, d = at % width;
    S sum = from[r * (width + 1) + d];
    if (before != nullptr) sum += static_cast<S>(load<1>(before + r * stride + d).v[0]);
    store<1>(to + r * stride + d, Vals<Stat<O>, 1>{{static_cast<Stat<O>>(sum)}});
  }
}

// out[i][j] = a[i] . b[j], for all rows of both tiles; out has rows of kTile + 1.
template <int kTile, class S>
__device__ __forceinline__ void tile_scores(const S* a, const S* b, int width, S* out) {
  constexpr int kRows = kTile / kTileWarps;
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  if (lane >= kTile) return;
  S sum[kRows] = {};
  for (int d = 0; d < width; ++d) {
    const S right = b[lane * (width + 1) + d];
#pragma unroll
    for (int r = 0; r < kRows; ++r) sum[r] += a[(warp * kRows + r) * (width + 1) + d] * right;
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) out[(warp * kRows + r) * (kTile + 1) + lane] = sum[r];
}

// c[i][d] = factor[i] * c[i][d] + sum over j of p[i][j] b[j][d], or with kTranspose of p[j][i] b[j][d].
// `factor` may be null.
template <int kTile, bool kTranspose, class S>
__device__ __forceinline__ void tile_product(const S* p, const S* b, int width, const S* factor, S* c) {
  constexpr int kRows = kTile / kTileWarps;
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  for (int d = lane; d < width; d += 32) {
    S sum[kRows] = {};
#pragma unroll 8
    for (int j = 0; j < kTile; ++j) {
      const S right = b[j * (width + 1) + d];
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const int i = warp * kRows + r;
        sum[r] += (kTranspose ? p[j * (kTile + 1) + i] : p[i * (kTile + 1) + j]) * right;
      }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int i = warp * kRows + r;
      S& at = c[i * (width + 1) + d];
      at = (factor != nullptr ? factor[i] * at : at) + sum[r];
    }
  }
}

template <class S>
__device__ __forceinline__ S* tile_memory() {
  extern __shared__ __align__(16) unsigned char raw[];
  return reinterpret_cast<S*>(raw);
}

// Tiles that get a block of their own: only a few where the work is rarely needed; blocks then loop.
inline unsigned launched_tiles(const AttentionShape& s, int64_t tiles) {
  constexpr int64_t kRarely = 4;
  return static_cast<unsigned>(s.needed != nullptr && tiles > kRarely ? kRarely : tiles);
}

// Launches `kernel` (a template of the tile's rows) with the largest tile whose shared memory is within
// kTileBytes, or with the smallest. `bytes` returns the shared memory for a number of rows.
template <class Bytes, class Launch>
void with_tile(const Bytes& bytes, const Launch& launch) {
  if (bytes(32) <= kTileBytes) return launch(std::integral_constant<int, 32>{});
  if (bytes(16) <= kTileBytes) return launch(std::integral_constant<int, 16>{});
  launch(std::integral_constant<int, 8>{});
}

}  // namespace quintet::kernels::cuda

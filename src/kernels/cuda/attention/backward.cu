// The native backward pass of attention, without atomics: dk and dv by tiles of keys, dq by tiles of
// queries, each recomputing the scores.
//
// With P = exp(scale * s - lse), D the dropout factors and delta = dout . o:
//   dv += (P D)^T dout,  dS = scale * P (D (dout v^T) - delta),  dk += dS^T q,  dq += dS k.
// With a soft cap scale * s becomes cap * t, t = tanh(scale * s / cap), and dS has the factor 1 - t^2.
#include <algorithm>

#include "kernels/cuda/attention/tile.cuh"

namespace quintet::kernels::cuda {
namespace {

template <class T>
struct Inputs {
  const T *dout, *q, *k, *v;
  const Stat<T>*lse, *delta;
};

// delta[heads, rows] = dout . o, a warp per row and head; for all sequences as soon as one is needed.
template <class T>
__global__ void __launch_bounds__(kTileThreads)
    delta_kernel(const __grid_constant__ TileShape shape, const T* dout, const T* o, Stat<T>* delta) {
  await_previous();
  bool needed = false;
  for (int s = static_cast<int>(threadIdx.x); s < shape.q.sequences; s += kTileThreads)
    needed = needed || !shape.idle(s);
  if (!__syncthreads_or(needed)) return;
  const int64_t items = shape.q_count * shape.heads, step = static_cast<int64_t>(gridDim.x) * kTileWarps;
  for (int64_t item = static_cast<int64_t>(blockIdx.x) * kTileWarps + threadIdx.x / 32; item < items;
       item += step) {
    const int64_t row = item / shape.heads, head = item % shape.heads,
                  at = row * shape.o_stride + head * shape.value_dim;
    Stat<T> sum = 0;
    for (int d = static_cast<int>(threadIdx.x % 32); d < shape.value_dim; d += 32)
      sum += load<1>(dout + at + d).v[0] * load<1>(o + at + d).v[0];
    sum = warp_fold(sum, Plus{});
    if (threadIdx.x % 32 == 0) delta[head * shape.q_count + row] = sum;
  }
}

// p: raw scores -> P D; ds: dout v^T -> dS; both zero where the row sees nothing. Rows and lanes as in
// tile_scores, which the same warp has run.
template <int kTile, class S>
__device__ __forceinline__ void gradients(const TileShape& shape, const Tile& query, const Tile& keys,
                                          int head, const S* lse, const S* delta, S* p, S* ds) {
  constexpr int kRows = kTile / kTileWarps;
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  if (lane >= kTile) return;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int i = warp * kRows + r, at = i * (kTile + 1) + lane;
    // Both are selected, not multiplied: a masked score may be far above lse, and 0 * inf must not enter.
    S weight = S(0), gradient = S(0);
    if (shape.sees(query, i, keys, lane)) {
      const int64_t row = static_cast<int64_t>(head) * shape.q_count + query.row + i;
      const auto score = shape.score(p[at]);
      const S factor = shape.drops ? shape.template dropout<S>(query, i, keys, lane, head) : S(1);
      weight = Math<S>::exp(score.value - lse[row]);
      gradient = weight * (ds[at] * factor - delta[row]) * score.slope * static_cast<S>(shape.scale);
      weight *= factor;
    }
    p[at] = weight;
    ds[at] = gradient;
  }
}

template <int kTile>
__device__ __forceinline__ bool any_seen(const TileShape& shape, const Tile& query, const Tile& keys) {
  constexpr int kRows = kTile / kTileWarps;
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  bool any = false;
#pragma unroll
  for (int r = 0; r < kRows; ++r)
    any = any || (lane < kTile && shape.sees(query, warp * kRows + r, keys, lane));
  return __syncthreads_or(any);  // also: the tiles of the last iteration are no longer read
}

// Shared memory in elements of S: tiles of k, v, q, dout and the results, P and dS.
__host__ __device__ constexpr int64_t key_elements(int tile, int head_dim, int value_dim) {
  return static_cast<int64_t>(tile) * (3 * (head_dim + 1) + 3 * (value_dim + 1) + 2 * (tile + 1));
}
__host__ __device__ constexpr int64_t query_elements(int tile, int head_dim, int value_dim) {
  return static_cast<int64_t>(tile) * (3 * (head_dim + 1) + 2 * (value_dim + 1) + 2 * (tile + 1));
}

template <int kTile, class T>
__device__ __forceinline__ void keys_tile(const TileShape& shape, int number, const Inputs<T>& in, T* dk,
                                          T* dv) {
  using S = Stat<T>;
  const int width = shape.head_dim, value_width = shape.value_dim;
  S* const k_tile = tile_memory<S>();
  S* const q_tile = k_tile + kTile * (width + 1);
  S* const dk_tile = q_tile + kTile * (width + 1);
  S* const v_tile = dk_tile + kTile * (width + 1);
  S* const dout_tile = v_tile + kTile * (value_width + 1);
  S* const dv_tile = dout_tile + kTile * (value_width + 1);
  S* const p = dv_tile + kTile * (value_width + 1);
  S* const ds = p + kTile * (kTile + 1);
  const int kv_head = static_cast<int>(blockIdx.y), sequence = static_cast<int>(blockIdx.z);
  const int run_tiles = (shape.k.length + kTile - 1) / kTile;
  const Tile keys = shape.key_tile(sequence, number / run_tiles, number % run_tiles * kTile, kTile);
  load_tile(in.k + keys.row * shape.k_stride + kv_head * width, shape.k_stride, keys.rows, width, kTile,
            k_tile);
  load_tile(in.v + keys.row * shape.v_stride + kv_head * value_width, shape.v_stride, keys.rows, value_width,
            kTile, v_tile);
  clear_tile(width, kTile, dk_tile);
  clear_tile(value_width, kTile, dv_tile);
  for (int g = 0; g < shape.group; ++g) {
    const int head = kv_head * shape.group + g;
    for (int run = 0; run < shape.q.runs; ++run)
      for (int offset = 0; offset < shape.q.length; offset += kTile) {
        const Tile query = shape.query_tile(sequence, run, offset, kTile);
        if (shape.apart(query, keys) || !any_seen<kTile>(shape, query, keys)) continue;
        load_tile(in.q + query.row * shape.q_stride + head * width, shape.q_stride, query.rows, width, kTile,
                  q_tile);
        load_tile(in.dout + query.row * shape.o_stride + head * value_width, shape.o_stride, query.rows,
                  value_width, kTile, dout_tile);
        __syncthreads();
        tile_scores<kTile>(q_tile, k_tile, width, p);
        tile_scores<kTile>(dout_tile, v_tile, value_width, ds);
        gradients<kTile>(shape, query, keys, head, in.lse, in.delta, p, ds);
        __syncthreads();
        tile_product<kTile, true>(p, dout_tile, value_width, static_cast<const S*>(nullptr), dv_tile);
        tile_product<kTile, true>(ds, q_tile, width, static_cast<const S*>(nullptr), dk_tile);
      }
  }
  __syncthreads();
  const int64_t k_at = keys.row * shape.dk_stride + kv_head * width,
                v_at = keys.row * shape.dv_stride + kv_head * value_width;
  store_tile(dk_tile, keys.rows, width, static_cast<const T*>(nullptr), dk + k_at, shape.dk_stride);
  store_tile(dv_tile, keys.rows, value_width, static_cast<const T*>(nullptr), dv + v_at, shape.dv_stride);
}
template <int kTile, class T>
__global__ void __launch_bounds__(kTileThreads)
    keys_kernel(const __grid_constant__ TileShape shape, int tiles, const Inputs<T> in, T* dk, T* dv) {
  await_previous();
  if (shape.idle(static_cast<int>(blockIdx.z))) return;
  // The first keys, which most queries see, come first.
  for (int tile = static_cast<int>(blockIdx.x); tile < tiles; tile += static_cast<int>(gridDim.x)) {
    keys_tile<kTile>(shape, tile, in, dk, dv);
    __syncthreads();
  }
}

template <int kTile, class T, class O>
__device__ __forceinline__ void queries_tile(const TileShape& shape, int number, const Inputs<T>& in,
                                             const O* dq_before, O* dq) {
  using S = Stat<T>;
  const int width = shape.head_dim, value_width = shape.value_dim;
  S* const q_tile = tile_memory<S>();
  S* const k_tile = q_tile + kTile * (width + 1);
  S* const dq_tile = k_tile + kTile * (width + 1);
  S* const v_tile = dq_tile + kTile * (width + 1);
  S* const dout_tile = v_tile + kTile * (value_width + 1);
  S* const p = dout_tile + kTile * (value_width + 1);
  S* const ds = p + kTile * (kTile + 1);
  const int head = static_cast<int>(blockIdx.y), sequence = static_cast<int>(blockIdx.z);
  const int kv_head = head / shape.group;
  const int run_tiles = (shape.q.length + kTile - 1) / kTile;
  const Tile query = shape.query_tile(sequence, number / run_tiles, number % run_tiles * kTile, kTile);
  load_tile(in.q + query.row * shape.q_stride + head * width, shape.q_stride, query.rows, width, kTile,
            q_tile);
  load_tile(in.dout + query.row * shape.o_stride + head * value_width, shape.o_stride, query.rows,
            value_width, kTile, dout_tile);
  clear_tile(width, kTile, dq_tile);
  for (int run = 0; run < shape.k.runs; ++run)
    for (int offset = 0; offset < shape.k.length; offset += kTile) {
      const Tile keys = shape.key_tile(sequence, run, offset, kTile);
      if (shape.apart(query, keys) || !any_seen<kTile>(shape, query, keys)) continue;
      load_tile(in.k + keys.row * shape.k_stride + kv_head * width, shape.k_stride, keys.rows, width, kTile,
                k_tile);
      load_tile(in.v + keys.row * shape.v_stride + kv_head * value_width, shape.v_stride, keys.rows,
                value_width, kTile, v_tile);
      __syncthreads();
      tile_scores<kTile>(q_tile, k_tile, width, p);
      tile_scores<kTile>(dout_tile, v_tile, value_width, ds);
      gradients<kTile>(shape, query, keys, head, in.lse, in.delta, p, ds);
      __syncwarp();
      tile_product<kTile, false>(ds, k_tile, width, static_cast<const S*>(nullptr), dq_tile);
    }
  __syncthreads();
  const int64_t at = query.row * shape.dq_stride + static_cast<int64_t>(head) * width;
  store_tile(dq_tile, query.rows, width, dq_before != nullptr ? dq_before + at : nullptr, dq + at,
             shape.dq_stride);
}
template <int kTile, class T, class O>
__global__ void __launch_bounds__(kTileThreads)
    queries_kernel(const __grid_constant__ TileShape shape, int tiles, const Inputs<T> in, const O* dq_before,
                   O* dq) {
  await_previous();
  if (shape.idle(static_cast<int>(blockIdx.z))) return;
  // The longest tiles come first.
  for (int tile = static_cast<int>(blockIdx.x); tile < tiles; tile += static_cast<int>(gridDim.x)) {
    queries_tile<kTile>(shape, tiles - 1 - tile, in, dq_before, dq);
    __syncthreads();
  }
}

template <class T, class O>
void backward(const AttentionShape& s, const T* dout, const T* q, const T* k, const T* v, const T* o,
              const Stat<T>* lse, const O* dq_before, O* dq, T* dk, T* dv, void* workspace, Stream stream,
              const char* what) {
  using S = Stat<T>;
  const TileShape shape(s);
  auto* const delta = static_cast<S*>(workspace);
  const int64_t items = s.q_rows.rows() * s.heads;
  if (items > 0) {
    constexpr int64_t kRarely = 256;  // blocks
    const int64_t blocks = divide_up(items, kTileWarps);
    delta_kernel<<<static_cast<unsigned>(s.needed != nullptr ? std::min(blocks, kRarely) : blocks),
                   kTileThreads, 0, stream>>>(shape, dout, o, delta);
    check_launch(what);
  }
  const Inputs<T> in{dout, q, k, v, lse, delta};
  if (s.k_rows.rows() > 0 && s.kv_heads > 0) {
    const auto bytes = [&](int tile) {
      return key_elements(tile, shape.head_dim, shape.value_dim) * static_cast<int64_t>(sizeof(S));
    };
    with_tile(bytes, [&](auto tile) {
      constexpr int kTile = decltype(tile)::value;
      const auto kernel = keys_kernel<kTile, T>;
      allow_all_shared(kernel, what);
      const int64_t tiles = s.k_rows.runs() * divide_up(s.k_rows.run_length(), kTile);
      const dim3 grid(launched_tiles(s, tiles), static_cast<unsigned>(s.kv_heads),
                      static_cast<unsigned>(s.k_rows.sequences));
      kernel<<<grid, kTileThreads, static_cast<size_t>(bytes(kTile)), stream>>>(
          shape, static_cast<int>(tiles), in, dk, dv);
    });
    check_launch(what);
  }
  if (items > 0) {
    const auto bytes = [&](int tile) {
      return query_elements(tile, shape.head_dim, shape.value_dim) * static_cast<int64_t>(sizeof(S));
    };
    with_tile(bytes, [&](auto tile) {
      constexpr int kTile = decltype(tile)::value;
      const auto kernel = queries_kernel<kTile, T, O>;
      allow_all_shared(kernel, what);
      const int64_t tiles = s.q_rows.runs() * divide_up(s.q_rows.run_length(), kTile);
      const dim3 grid(launched_tiles(s, tiles), static_cast<unsigned>(s.heads),
                      static_cast<unsigned>(s.q_rows.sequences));
      kernel<<<grid, kTileThreads, static_cast<size_t>(bytes(kTile)), stream>>>(
          shape, static_cast<int>(tiles), in, dq_before, dq);
    });
    check_launch(what);
  }
}

}  // namespace

template <class T>
void attention_backward(const AttentionShape& shape, const T* dout, const T* q, const T* k, const T* v,
                        const T* o, const Stat<T>* lse, T* dq, T* dk, T* dv, void* workspace, Stream stream) {
  const T* const none = nullptr;
  backward<T, T>(shape, dout, q, k, v, o, lse, none, dq, dk, dv, workspace, stream, "attention_backward");
}

template <class T>
void attention_hop_backward(const AttentionShape& shape, const T* dout, const T* q, const T* k, const T* v,
                            const T* o, const Stat<T>* lse, const Stat<T>* dq_before, Stat<T>* dq, T* dk,
                            T* dv, void* workspace, Stream stream) {
  backward<T, Stat<T>>(shape, dout, q, k, v, o, lse, dq_before, dq, dk, dv, workspace, stream,
                       "attention_hop_backward");
}

#define INSTANTIATE(T)                                            \
  template decltype(attention_backward<T>) attention_backward<T>; \
  template decltype(attention_hop_backward<T>) attention_hop_backward<T>;
INSTANTIATE(double)
INSTANTIATE(float)
INSTANTIATE(Bf16)
INSTANTIATE(F16)
#undef INSTANTIATE

}  // namespace quintet::kernels::cuda

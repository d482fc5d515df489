// The native forward pass of attention: an online softmax, one block per tile of query rows and head.
#include "kernels/cuda/attention/tile.cuh"

namespace quintet::kernels::cuda {
namespace {

template <class S>
struct Lowest;
template <>
struct Lowest<float> {
  static constexpr float value = -3.402823466e+38f;
};
template <>
struct Lowest<double> {
  static constexpr double value = -1.7976931348623157e+308;
};

template <class S>
__device__ __forceinline__ S minus_infinity() {
  if constexpr (sizeof(S) == 8)
    return -__longlong_as_double(0x7ff0000000000000ll);
  else
    return -__int_as_float(0x7f800000);
}

// Shared memory in elements of S: q, k and v tiles, the output, scores, and per row max, sum and factor.
__host__ __device__ constexpr int64_t forward_elements(int tile, int head_dim, int value_dim) {
  return static_cast<int64_t>(tile) * (2 * (head_dim + 1) + 2 * (value_dim + 1) + (tile + 1) + 3);
}

// to = own_share * out + old_share * before, row by row; `to` may be `before`. Several 16-byte vectors are
// in flight at a time.
template <int V, class S, class O>
__device__ __forceinline__ void merge_rows(const S* out, const S* own_share, const S* old_share, int rows,
                                           int width, const S* before, O* to, int64_t stride) {
  constexpr int kUnroll = 4;
  const int packs = rows * width / V;
  for (int first = static_cast<int>(threadIdx.x); first < packs; first += kTileThreads * kUnroll) {
    Pack<S, V> old[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int at = (first + u * kTileThreads) * V, i = at / width, d = at % width;
      if (i < rows && before != nullptr && old_share[i] != S(0)) old[u] = fetch<V>(before + i * stride + d);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int at = (first + u * kTileThreads) * V, i = at / width, d = at % width;
      if (i >= rows) break;
      Vals<Stat<O>, V> result;
      const bool merged = before != nullptr && old_share[i] != S(0);
      const auto earlier = values<S, V>(old[u]);
#pragma unroll
      for (int k = 0; k < V; ++k) {
        // Selected, not multiplied: a value with weight 0 may be infinite.
        S sum = own_share[i] == S(0) ? S(0) : out[i * (width + 1) + d + k] * own_share[i];
        if (merged) sum += earlier.v[k] * old_share[i];
        result.v[k] = static_cast<Stat<O>>(sum);
      }
      store<V>(to + i * stride + d, result);
    }
  }
}

// The running max is -inf exactly for the rows that have seen no key.
template <int kTile, class T, class O>
__device__ __forceinline__ void forward_tile(const TileShape& shape, int number, const T* q, const T* k,
                                             const T* v, const Stat<T>* o_before, const Stat<T>* lse_before,
                                             O* o, Stat<T>* lse) {
  using S = Stat<T>;
  const int width = shape.head_dim, value_width = shape.value_dim;
  S* const q_tile = tile_memory<S>();
  S* const k_tile = q_tile + kTile * (width + 1);
  S* const v_tile = k_tile + kTile * (width + 1);
  S* const out = v_tile + kTile * (value_width + 1);
  S* const p = out + kTile * (value_width + 1);
  S* const max = p + kTile * (kTile + 1);
  S* const sum = max + kTile;
  S* const factor = sum + kTile;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int head = static_cast<int>(blockIdx.y), sequence = static_cast<int>(blockIdx.z);
  const int run_tiles = (shape.q.length + kTile - 1) / kTile;
  const Tile query = shape.query_tile(sequence, number / run_tiles, number % run_tiles * kTile, kTile);
  load_tile(q + query.row * shape.q_stride + head * width, shape.q_stride, query.rows, width, kTile, q_tile);
  clear_tile(value_width, kTile, out);
  if (thread < kTile) {
    max[thread] = minus_infinity<S>();
    sum[thread] = S(0);
  }
  const int kv_head = head / shape.group;
  for (int run = 0; run < shape.k.runs; ++run)
    for (int offset = 0; offset < shape.k.length; offset += kTile) {
      const Tile keys = shape.key_tile(sequence, run, offset, kTile);
      if (shape.apart(query, keys)) continue;
      constexpr int kRows = kTile / kTileWarps;
      bool seen[kRows];
      bool any = false;
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        seen[r] = lane < kTile && shape.sees(query, warp * kRows + r, keys, lane);
        any = any || seen[r];
      }
      if (!__syncthreads_or(any)) continue;  // also: the tiles of the last iteration are no longer read
      load_tile(k + keys.row * shape.k_stride + kv_head * width, shape.k_stride, keys.rows, width, kTile,
                k_tile);
      load_tile(v + keys.row * shape.v_stride + kv_head * value_width, shape.v_stride, keys.rows, value_width,
                kTile, v_tile);
      __syncthreads();
      tile_scores<kTile>(q_tile, k_tile, width, p);
      // Each warp continues with the rows whose scores it has computed itself.
      __syncwarp();
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const int i = warp * kRows + r;
        const S score = lane < kTile ? shape.score(p[i * (kTile + 1) + lane]).value : S(0);
        // A NaN score need not raise the maximum: its weight is NaN, and so are the row's sum and output.
        S best = minus_infinity<S>();
        if (seen[r]) best = score > Lowest<S>::value ? score : Lowest<S>::value;
        best = warp_fold(best, [](S a, S b) { return a > b ? a : b; });
        const S older = max[i], next = older > best ? older : best;
        S weight = seen[r] ? Math<S>::exp(score - next) : S(0);
        const S total = warp_fold(weight, Plus{});
        if (seen[r] && shape.drops) weight *= shape.template dropout<S>(query, i, keys, lane, head);
        if (lane < kTile) p[i * (kTile + 1) + lane] = weight;
        __syncwarp();
        if (lane == 0) {
          const S alpha = older == next ? S(1) : Math<S>::exp(older - next);
          factor[i] = alpha;
          sum[i] = sum[i] * alpha + total;
          max[i] = next;
        }
        __syncwarp();
      }
      tile_product<kTile, false>(p, v_tile, value_width, factor, out);
    }
  __syncthreads();
  // Each row's own result and the earlier one, weighted by their shares of the sum of exponentials.
  S* const old_share = factor;
  S* const own_share = p;
  if (thread < query.rows) {
    const int i = thread;
    const int64_t at = static_cast<int64_t>(head) * shape.q_count + query.row + i;
    const bool unseen = max[i] == minus_infinity<S>();
    const S own_lse = unseen ? max[i] : max[i] + log(sum[i]);
    const S earlier = lse_before != nullptr ? lse_before[at] : minus_infinity<S>();
    S own = unseen ? S(0) : S(1) / sum[i], old = S(0), all = own_lse;
    if (lse_before != nullptr &&
        (unseen || (own_lse == minus_infinity<S>() && earlier != minus_infinity<S>()))) {
      own = S(0);  // the earlier result stays, bit for bit
      old = S(1);
      all = earlier;
    } else if (earlier != minus_infinity<S>()) {
      const S top = own_lse > earlier ? own_lse : earlier;
      all = top + log(Math<S>::exp(earlier - top) + Math<S>::exp(own_lse - top));
      old = Math<S>::exp(earlier - all);
      own *= Math<S>::exp(own_lse - all);
    }
    lse[at] = all;
    old_share[i] = old;
    own_share[i] = own;
  }
  __syncthreads();
  const int64_t first = query.row * shape.o_stride + static_cast<int64_t>(head) * value_width;
  const S* const before = o_before != nullptr ? o_before + first : nullptr;
  if ((value_width | shape.o_stride) % kWide<S> == 0 &&
      (reinterpret_cast<uintptr_t>(o) | reinterpret_cast<uintptr_t>(o_before)) % 16 == 0)
    merge_rows<kWide<S>>(out, own_share, old_share, query.rows, value_width, before, o + first,
                         shape.o_stride);
  else
    merge_rows<1>(out, own_share, old_share, query.rows, value_width, before, o + first, shape.o_stride);
}

template <int kTile, class T, class O>
__global__ void __launch_bounds__(kTileThreads)
    forward_kernel(const __grid_constant__ TileShape shape, int tiles, const T* q, const T* k, const T* v,
                   const Stat<T>* o_before, const Stat<T>* lse_before, O* o, Stat<T>* lse) {
  await_previous();
  if (shape.idle(static_cast<int>(blockIdx.z))) return;
  // The longest tiles, those at the end of a sequence, come first.
  for (int tile = static_cast<int>(blockIdx.x); tile < tiles; tile += static_cast<int>(gridDim.x)) {
    forward_tile<kTile>(shape, tiles - 1 - tile, q, k, v, o_before, lse_before, o, lse);
    __syncthreads();
  }
}

template <class T, class O>
void forward(const AttentionShape& s, const T* q, const T* k, const T* v, const Stat<T>* o_before,
             const Stat<T>* lse_before, O* o, Stat<T>* lse, Stream stream, const char* what) {
  using S = Stat<T>;
  if (s.q_rows.rows() <= 0 || s.heads <= 0) return;
  const TileShape shape(s);
  const auto bytes = [&](int tile) {
    return forward_elements(tile, shape.head_dim, shape.value_dim) * static_cast<int64_t>(sizeof(S));
  };
  with_tile(bytes, [&](auto tile) {
    constexpr int kTile = decltype(tile)::value;
    const auto kernel = forward_kernel<kTile, T, O>;
    allow_all_shared(kernel, what);
    const int64_t tiles = s.q_rows.runs() * divide_up(s.q_rows.run_length(), kTile);
    const dim3 grid(launched_tiles(s, tiles), static_cast<unsigned>(s.heads),
                    static_cast<unsigned>(s.q_rows.sequences));
    kernel<<<grid, kTileThreads, static_cast<size_t>(bytes(kTile)), stream>>>(
        shape, static_cast<int>(tiles), q, k, v, o_before, lse_before, o, lse);
  });
  check_launch(what);
}

}  // namespace

template <class T>
void attention(const AttentionShape& shape, const T* q, const T* k, const T* v, T* o, Stat<T>* lse,
               Stream stream) {
  forward<T, T>(shape, q, k, v, nullptr, nullptr, o, lse, stream, "attention");
}

template <class T>
void attention_hop(const AttentionShape& shape, const T* q, const T* k, const T* v, const Stat<T>* o_before,
                   const Stat<T>* lse_before, Stat<T>* o, Stat<T>* lse, Stream stream) {
  forward<T, Stat<T>>(shape, q, k, v, o_before, lse_before, o, lse, stream, "attention_hop");
}

#define INSTANTIATE(T)                          \
  template decltype(attention<T>) attention<T>; \
  template decltype(attention_hop<T>) attention_hop<T>;
INSTANTIATE(double)
INSTANTIATE(float)
INSTANTIATE(Bf16)
INSTANTIATE(F16)
#undef INSTANTIATE

}  // namespace quintet::kernels::cuda

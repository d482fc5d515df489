// AdamW on 8-bit codes. A warp has a block of elements: it decodes, updates, finds the new scales and encodes
// without leaving its registers.
#include "kernels/cuda/optimizer/blockwise.h"
#include "kernels/cuda/optimizer/update.cuh"
#include "kernels/dynamic_map.h"

namespace quintet::kernels::cuda {
namespace {

inline constexpr int kWarps = kThreads / 32;
inline constexpr unsigned kAll = 0xffffffffu;
inline constexpr int kFast = 256;  // elements of a block that have a path of their own

struct Maps {
  DynamicMap<true> m;
  DynamicMap<false> v;
};
__device__ const Maps kMaps = {};

// The ranges of one launch, passed by value so that a captured graph holds them.
template <class Place>
struct BlockRanges {
  static constexpr int kMaxRanges = 40;
  int count = 0;
  Place place[kMaxRanges];
  int64_t size[kMaxRanges];
  int64_t block_end[kMaxRanges];
  double lr_factor[kMaxRanges], weight_decay[kMaxRanges];
};

template <class P, class G, class C>
PlainMaster<P, C> master_of(const BlockUpdateRange<P, G, C>& r) {
  return {r.master, r.copy};
}
template <class G>
SplitMaster master_of(const SplitBlockUpdateRange<G>& r) {
  return {r.weight, r.remainder};
}

template <class Master, class Gradient>
struct BlockPlace {
  Master master;
  uint8_t *m, *v;
  typename Master::Arithmetic *m_scale, *v_scale;
  const Gradient* grad;
};

template <bool kSigned, class P>
__device__ __forceinline__ unsigned code_of(const DynamicMap<kSigned>& map, P x) {
  using Map = DynamicMap<kSigned>;
  const P magnitude = fmin(fabs(x), P(1));
  int bucket, m;
  if constexpr (sizeof(P) == 8) {
    bucket = static_cast<int>(__double_as_longlong(magnitude) >> (52 - Map::kMantissa)) -
             ((1023 - Map::kOctaves) << Map::kMantissa);
    m = map.first[max(bucket, 0)];
    const int at = Map::kZero + m;
    if (m < Map::kLargest && magnitude > (P(map.value[at]) + P(map.value[at + 1])) / 2) ++m;
  } else {
    bucket = (__float_as_int(magnitude) >> (23 - Map::kMantissa)) - ((127 - Map::kOctaves) << Map::kMantissa);
    m = map.first[max(bucket, 0)];
    if (magnitude > map.border[m]) ++m;
  }
  if (!kSigned || x >= 0) return Map::kZero + m;
  return Map::kZero - min(m, Map::kLargest - 1);
}

__device__ __forceinline__ float warp_max(float x) {  // of numbers that are not negative
  return __uint_as_float(__reduce_max_sync(kAll, __float_as_uint(x)));
}
__device__ __forceinline__ double warp_max(double x) {
  for (int k = 16; k > 0; k /= 2) x = fmax(x, __shfl_xor_sync(kAll, x, k));
  return x;
}

template <class P>
struct Update {
  P keep, rate, root, clip, b1, b2, c1, c2, eps;
  // Every multiply-add says how often it rounds, so that bits do not depend on the path.
  __device__ __forceinline__ void moments(P g, P& mean, P& square) const {
    g = g * clip;
    mean = fma(c1, g, b1 * mean);
    square = fma(c2 * g, g, b2 * square);
  }
  __device__ __forceinline__ P weight(P p, P mean, P square) const {
    return fma(p, keep, -(rate * mean / fma(sqrt(square), root, eps)));
  }
};

// Blocks of 256 whole elements at addresses that 16-byte vectors may begin at.
template <class Place>
__device__ __forceinline__ void fast_block(const Maps& maps, const Place& at, int64_t begin, float m_scale,
                                           float v_scale, const Update<float>& f, float& most_m,
                                           float& most_v, int lane) {
  constexpr int V = 4, U = kFast / (32 * V);
  using Master = decltype(at.master);
  using Gradient = std::remove_const_t<std::remove_pointer_t<decltype(at.grad)>>;
  typename std::remove_const_t<Master>::template Held<V> held[U];
  Pack<Gradient, V> gradient[U];
  uint32_t m[U], v[U];
#pragma unroll
  for (int u = 0; u < U; ++u) {
    const int64_t i = begin + u * 32 * V + lane * V;
    held[u] = at.master.template read<V>(i);
    gradient[u] = fetch<V>(at.grad + i);
    m[u] = *reinterpret_cast<const uint32_t*>(at.m + i);
    v[u] = *reinterpret_cast<const uint32_t*>(at.v + i);
  }
  float mean[U][V], square[U][V];
#pragma unroll
  for (int u = 0; u < U; ++u) {
    auto p = std::remove_const_t<Master>::template value<V>(held[u]);
    const auto g = values<Gradient, V>(gradient[u]);
#pragma unroll
    for (int j = 0; j < V; ++j) {
      mean[u][j] = maps.m.value[m[u] >> (8 * j) & 0xffu] * m_scale;
      square[u][j] = maps.v.value[v[u] >> (8 * j) & 0xffu] * v_scale;
      f.moments(g.v[j], mean[u][j], square[u][j]);
      most_m = fmaxf(most_m, fabsf(mean[u][j]));
      most_v = fmaxf(most_v, square[u][j]);
      p.v[j] = f.weight(p.v[j], mean[u][j], square[u][j]);
    }
    at.master.template write<V>(begin + u * 32 * V + lane * V, p);
  }
  most_m = warp_max(most_m);
  most_v = warp_max(most_v);
  const float per_m = most_m > 0 ? 1.0f / most_m : 0.0f, per_v = most_v > 0 ? 1.0f / most_v : 0.0f;
#pragma unroll
  for (int u = 0; u < U; ++u) {
    const int64_t i = begin + u * 32 * V + lane * V;
    m[u] = v[u] = 0;
#pragma unroll
    for (int j = 0; j < V; ++j) {
      m[u] |= code_of(maps.m, mean[u][j] * per_m) << (8 * j);
      v[u] |= code_of(maps.v, square[u][j] * per_v) << (8 * j);
    }
    *reinterpret_cast<uint32_t*>(at.m + i) = m[u];
    *reinterpret_cast<uint32_t*>(at.v + i) = v[u];
  }
}

// Any block: once for the scales, once more for everything else.
template <class P, class Place>
__device__ void any_block(const Maps& maps, const Place& at, int64_t begin, int64_t count, P m_scale,
                          P v_scale, const Update<P>& f, P& most_m, P& most_v, int lane) {
  using Master = std::remove_const_t<decltype(at.master)>;
  const auto moments = [&](int64_t i, P& mean, P& square) {
    mean = P(maps.m.value[at.m[i]]) * m_scale;
    square = P(maps.v.value[at.v[i]]) * v_scale;
    f.moments(P(load<1>(at.grad + i).v[0]), mean, square);
  };
  P mean, square;
  for (int64_t e = lane; e < count; e += 32) {
    moments(begin + e, mean, square);
    most_m = fmax(most_m, fabs(mean));
    most_v = fmax(most_v, square);
  }
  most_m = warp_max(most_m);
  most_v = warp_max(most_v);
  const P per_m = most_m > 0 ? P(1) / most_m : P(0), per_v = most_v > 0 ? P(1) / most_v : P(0);
  for (int64_t e = lane; e < count; e += 32) {
    const int64_t i = begin + e;
    moments(i, mean, square);
    auto p = Master::template value<1>(at.master.template read<1>(i));
    p.v[0] = f.weight(p.v[0], mean, square);
    at.master.template write<1>(i, p);
    at.m[i] = static_cast<uint8_t>(code_of(maps.m, mean * per_m));
    at.v[i] = static_cast<uint8_t>(code_of(maps.v, square * per_v));
  }
}

template <class Place>
__global__ void __launch_bounds__(kThreads)
    blockwise_kernel(AdamWScalars k, int block_size, bool fast,
                     const __grid_constant__ BlockRanges<Place> ranges) {
  await_previous();
  using P = std::remove_pointer_t<decltype(ranges.place[0].m_scale)>;
  static_assert(sizeof(Maps) % 4 == 0);
  __shared__ uint32_t words[sizeof(Maps) / 4];  // not a Maps, whose constructor runs on the host only
  __shared__ double correct1, correct2;
  for (int i = threadIdx.x; i < static_cast<int>(sizeof(Maps) / 4); i += kThreads)
    words[i] = reinterpret_cast<const uint32_t*>(&kMaps)[i];
  const Maps& maps = reinterpret_cast<const Maps&>(words);
  if (threadIdx.x == 0) {
    correct1 = 1.0 - power(k.beta1, *k.step);
    correct2 = 1.0 - power(k.beta2, *k.step);
  }
  __syncthreads();
  if (k.ok != nullptr && *k.ok == 0) return;
  const int lane = threadIdx.x % 32;
  const int64_t blocks = ranges.block_end[ranges.count - 1];
  Update<P> f{.keep = 0,
              .rate = 0,
              .root = P(1.0 / sqrt(correct2)),
              .clip = P(k.clip_scale != nullptr ? *k.clip_scale : 1.0),
              .b1 = P(k.beta1),
              .b2 = P(k.beta2),
              .c1 = P(1.0 - k.beta1),
              .c2 = P(1.0 - k.beta2),
              .eps = P(k.eps)};
  int range = -1;
  for (int64_t q = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32; q < blocks;
       q += static_cast<int64_t>(gridDim.x) * kWarps) {
    if (range < 0 || q >= ranges.block_end[range]) {
      do ++range;
      while (q >= ranges.block_end[range]);
      const double lr = *k.lr * ranges.lr_factor[range];
      f.keep = P(1.0 - lr * decay_of(k, ranges.weight_decay[range]));
      f.rate = P(lr / correct1);
    }
    const Place& at = ranges.place[range];
    const int64_t b = q - (range > 0 ? ranges.block_end[range - 1] : 0), begin = b * block_size;
    const int64_t left = ranges.size[range] - begin, count = left < block_size ? left : block_size;
    const P m_scale = at.m_scale[b], v_scale = at.v_scale[b];
    P most_m = 0, most_v = 0;
    bool done = false;
    if constexpr (sizeof(P) == 4)
      if (fast && count == kFast) {
        fast_block(maps, at, begin, m_scale, v_scale, f, most_m, most_v, lane);
        done = true;
      }
    if (!done) any_block<P>(maps, at, begin, count, m_scale, v_scale, f, most_m, most_v, lane);
    if (lane == 0) {
      at.m_scale[b] = most_m;
      at.v_scale[b] = most_v;
    }
  }
}

template <class Place, class Range>
void update_blocks(std::span<const Range> all, int64_t block_size, const AdamWScalars& k, Stream stream) {
  using Launch = BlockRanges<Place>;
  static_assert(sizeof(Launch) + sizeof(k) <= 4000, "parameters of a kernel");
  int device = 0, processors = 0, resident = 0;
  check(cudaGetDevice(&device), "adamw8bit");
  check(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device), "adamw8bit");
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, blockwise_kernel<Place>, kThreads, 0),
        "adamw8bit");
  // Addresses that vectors may begin at, and others, go to separate launches.
  for (const bool fast : {true, false}) {
    Launch ranges;
    const auto launch = [&] {
      if (ranges.count == 0) return;
      const int64_t wanted = divide_up(ranges.block_end[ranges.count - 1], int64_t{kWarps}),
                    most = int64_t{processors} * resident;
      blockwise_kernel<Place><<<static_cast<unsigned>(wanted < most ? wanted : most), kThreads, 0, stream>>>(
          k, static_cast<int>(block_size), fast, ranges);
      check_launch("adamw8bit");
      ranges.count = 0;
    };
    for (const Range& r : all) {
      const Place at{master_of(r), r.m, r.v, r.m_scale, r.v_scale, r.gradient};
      const bool aligned = block_size == kFast && at.master.wide() && in_packs(r.gradient) &&
                           reinterpret_cast<uintptr_t>(r.m) % 4 == 0 &&
                           reinterpret_cast<uintptr_t>(r.v) % 4 == 0;
      if (r.count <= 0 || aligned != fast) continue;
      if (ranges.count == Launch::kMaxRanges) launch();
      const int i = ranges.count++;
      ranges.place[i] = at;
      ranges.size[i] = r.count;
      ranges.block_end[i] = (i > 0 ? ranges.block_end[i - 1] : 0) + divide_up(r.count, block_size);
      ranges.lr_factor[i] = r.lr_factor;
      ranges.weight_decay[i] = r.weight_decay;
    }
    launch();
  }
}

}  // namespace

template <class Master, class Gradient, class Copy>
void adamw8bit(std::span<const BlockUpdateRange<Master, Gradient, Copy>> ranges, int64_t block_size,
               const AdamWScalars& scalars, Stream stream) {
  update_blocks<BlockPlace<PlainMaster<Master, Copy>, Gradient>>(ranges, block_size, scalars, stream);
}
template <class Gradient>
void adamw8bit(std::span<const SplitBlockUpdateRange<Gradient>> ranges, int64_t block_size,
               const AdamWScalars& scalars, Stream stream) {
  update_blocks<BlockPlace<SplitMaster, Gradient>>(ranges, block_size, scalars, stream);
}

#define INSTANTIATE(M, G, C) \
  template void adamw8bit(std::span<const BlockUpdateRange<M, G, C>>, int64_t, const AdamWScalars&, Stream);
INSTANTIATE(double, double, double)
INSTANTIATE(double, double, float)
INSTANTIATE(double, double, Bf16)
INSTANTIATE(float, float, float)
INSTANTIATE(float, float, Bf16)
INSTANTIATE(float, float, F16)
INSTANTIATE(float, Bf16, Bf16)
#undef INSTANTIATE
template void adamw8bit(std::span<const SplitBlockUpdateRange<float>>, int64_t, const AdamWScalars&, Stream);
template void adamw8bit(std::span<const SplitBlockUpdateRange<Bf16>>, int64_t, const AdamWScalars&, Stream);

}  // namespace quintet::kernels::cuda

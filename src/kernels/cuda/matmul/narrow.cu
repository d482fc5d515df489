// Tensor cores take 16 rows of W as their first operand and 8 rows of X as their second, both straight from
// memory: the order of k within a matrix instruction is free as long as both operands agree, so every thread
// loads 16 contiguous bytes of each. A block has 64 rows of W and a range of k: four warps with 16 rows each,
// twice, for the even and the odd slabs of k. Warps with the same slabs find X in L1. Where W has too few
// rows to keep all multiprocessors reading, several blocks divide k, and the last one to finish adds their
// sums in order. Nothing of this depends on the number of rows of X.
#include "kernels/cuda/matmul/narrow.h"
#include "kernels/cuda/matmul/narrow_hopper.h"
#include "kernels/cuda/support/launch.cuh"
#include "kernels/cuda/support/vector16.cuh"

namespace quintet::kernels::cuda {
namespace {

constexpr int kThreads = 256, kGroups = 4, kRows = 16 * kGroups;
constexpr int kSlab = 32;  // of k: two matrix instructions
constexpr int kWantedBlocks = 256, kMaxSplits = 4;

__device__ __forceinline__ void multiply(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                         uint32_t b0, uint32_t b1) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
#endif
}

// W is read once: it should not displace X in L1.
__device__ __forceinline__ uint4 stream_in(const Bf16* p) {
  uint4 v;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
  return v;
}

struct Narrow {
  const Bf16* x;
  const Bf16* w;
  Bf16* y;
  const Bf16* addend;
  int rows, n, k, splits;
  int64_t ldx, ldy;
  float* partials;     // [splits, rows, n]
  uint32_t* counters;  // by block of rows of W
};

// kTiles: eights of rows of X. kConstant: no kernel writes W, so that it may be read before the previous
// kernel has finished.
template <int kTiles, bool kConstant>
__global__ void __launch_bounds__(kThreads, 2) narrow(Narrow p) {
  allow_next();
  if constexpr (!kConstant) await_writes();
  constexpr int kUnroll = kTiles == 1 ? 3 : 2;  // slabs of a stage; the next stage is in flight
  __shared__ float sums[kRows][kTiles * 8 + 1];
  __shared__ bool is_last;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = lane / 4, part = lane % 4;
  const int group = warp % kGroups, half = warp / kGroups, first = blockIdx.x * kRows;
  const int slabs = p.k / kSlab / p.splits, begin = blockIdx.y * slabs;
  const Bf16* const w0 =
      p.w + static_cast<int64_t>(first + group * 16 + row) * p.k + begin * kSlab + part * 8;
  const Bf16* const w1 = w0 + int64_t{8} * p.k;
  const Bf16* const x = p.x + begin * kSlab + part * 8;
  float c[kTiles][4] = {};
  uint4 a[2][kUnroll][2];
  const auto fetch = [&](uint4(&to)[kUnroll][2], int slab) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int s = slab + 2 * u;
      to[u][0] = s < slabs ? stream_in(w0 + s * kSlab) : uint4{};
      to[u][1] = s < slabs ? stream_in(w1 + s * kSlab) : uint4{};
    }
  };
  const auto use = [&](const uint4(&from)[kUnroll][2], int slab) {
    uint4 b[kUnroll][kTiles];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u)
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        const int column = tile * 8 + row, s = slab + 2 * u;
        b[u][tile] = uint4{};
        if (column < p.rows && s < slabs)
          b[u][tile] = *reinterpret_cast<const uint4*>(x + column * p.ldx + s * kSlab);
      }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u)
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        multiply(c[tile], from[u][0].x, from[u][1].x, from[u][0].y, from[u][1].y, b[u][tile].x, b[u][tile].y);
        multiply(c[tile], from[u][0].z, from[u][1].z, from[u][0].w, from[u][1].w, b[u][tile].z, b[u][tile].w);
      }
  };
  constexpr int kStage = 2 * kUnroll;  // slabs, of both halves
  fetch(a[0], half);
  if constexpr (kConstant) await_writes();
  for (int slab = half; slab < slabs; slab += 2 * kStage) {
    fetch(a[1], slab + kStage);
    use(a[0], slab);
    fetch(a[0], slab + 2 * kStage);
    use(a[1], slab + kStage);
  }
  // c0, c1: row `row`, columns 2 part and 2 part + 1; c2, c3: row + 8. Even slabs, then odd ones.
  const auto place = [&](int tile, int i) -> float& {
    return sums[group * 16 + row + i / 2 * 8][tile * 8 + part * 2 + i % 2];
  };
  if (half == 1) {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
      for (int i = 0; i < 4; ++i) place(tile, i) = c[tile][i];
  }
  __syncthreads();
  if (half == 0) {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
      for (int i = 0; i < 4; ++i) place(tile, i) += c[tile][i];
  }
  __syncthreads();
  const auto finish = [&](int column, int r, float sum) {
    const int64_t at = column * p.ldy + first + r;
    if (p.addend != nullptr) sum += values<Bf16, 1>(kernels::cuda::fetch<1>(p.addend + at)).v[0];
    put<1>(p.y + at, packed<Bf16, 1>({{sum}}));
  };
  for (int i = threadIdx.x; i < kRows * p.rows; i += kThreads) {
    const int column = i / kRows, r = i % kRows;
    if (p.splits == 1)
      finish(column, r, sums[r][column]);
    else
      p.partials[(static_cast<int64_t>(blockIdx.y) * p.rows + column) * p.n + first + r] = sums[r][column];
  }
  if (p.splits == 1) return;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0)
    is_last = atomicAdd(p.counters + blockIdx.x, 1u) == static_cast<uint32_t>(p.splits - 1);
  __syncthreads();
  if (!is_last) return;
  __threadfence();
  for (int i = threadIdx.x; i < kRows * p.rows; i += kThreads) {
    const int column = i / kRows, r = i % kRows;
    float term[kMaxSplits], sum = 0;
#pragma unroll
    for (int s = 0; s < kMaxSplits; ++s)
      term[s] = s < p.splits
                    ? __ldcg(p.partials + (static_cast<int64_t>(s) * p.rows + column) * p.n + first + r)
                    : 0.f;
#pragma unroll
    for (int s = 0; s < kMaxSplits; ++s) sum += term[s];
    finish(column, r, sum);
  }
  if (threadIdx.x == 0) p.counters[blockIdx.x] = 0;
}

bool whole(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

// A function of the sizes of W alone.
int splits_of(int64_t n, int64_t k) {
  int64_t splits = 1;
  while (n / kRows * splits < kWantedBlocks && splits < kMaxSplits && k / (2 * kSlab) % (2 * splits) == 0 &&
         k / splits >= 1024)
    splits *= 2;
  return static_cast<int>(splits);
}

template <bool kConstant>
void launch(const Narrow& p, Stream stream) {
  const dim3 grid(static_cast<unsigned>(p.n / kRows), static_cast<unsigned>(p.splits));
  if (p.rows <= 8)
    narrow<1, kConstant><<<grid, kThreads, 0, stream>>>(p);
  else if (p.rows <= 16)
    narrow<2, kConstant><<<grid, kThreads, 0, stream>>>(p);
  else
    narrow<4, kConstant><<<grid, kThreads, 0, stream>>>(p);
  check_launch("narrow_matmul");
}

}  // namespace

bool is_narrow(const GemmArgs& g) {
  const bool types =
      g.a_type == base::DType::BF16 && g.b_type == base::DType::BF16 && g.c_type == base::DType::BF16;
  return types && !g.trans_a && g.trans_b && !g.accumulate && g.m > 0 && g.m <= kNarrowRows && g.n > 0 &&
         g.n % kRows == 0 && g.k > 0 && g.k % (2 * kSlab) == 0 && g.ldb == g.k && g.lda % 8 == 0 &&
         whole(g.a) && whole(g.b);
}

int64_t narrow_workspace_bytes(const GemmArgs& g) {
  const int splits = splits_of(g.n, g.k);
  return splits > 1 ? splits * g.m * g.n * int64_t{sizeof(float)} : 0;
}

void narrow_matmul(const GemmArgs& g, bool constant, void* workspace, uint32_t* counters, Stream stream) {
  if (narrow_on_hopper(g, constant, stream)) return;
  const Narrow p{.x = static_cast<const Bf16*>(g.a),
                 .w = static_cast<const Bf16*>(g.b),
                 .y = static_cast<Bf16*>(g.c),
                 .addend = static_cast<const Bf16*>(g.addend),
                 .rows = static_cast<int>(g.m),
                 .n = static_cast<int>(g.n),
                 .k = static_cast<int>(g.k),
                 .splits = splits_of(g.n, g.k),
                 .ldx = g.lda,
                 .ldy = g.ldc,
                 .partials = static_cast<float*>(workspace),
                 .counters = counters};
  if (p.splits > 1 && (workspace == nullptr || counters == nullptr))
    fail("narrow_matmul: a product in splits needs a workspace and counters");
  if (p.splits > 1 && p.n / kRows > kNarrowCounters) fail("narrow_matmul: more blocks of rows than counters");
  if (constant)
    launch<true>(p, stream);
  else
    launch<false>(p, stream);
}

}  // namespace quintet::kernels::cuda

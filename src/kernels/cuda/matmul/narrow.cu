// Tensor cores take 16 rows of W as their first operand and 8 rows of X as their second, both straight from
// memory: the order of k within a matrix instruction is free as long as both operands agree, so every thread
// loads 16 contiguous bytes of each. The warps of a block share its rows of W and divide k; their sums are
// added in order.
#include "kernels/cuda/matmul/narrow.h"
#include "kernels/cuda/support/launch.cuh"
#include "kernels/cuda/support/vector16.cuh"

namespace quintet::kernels::cuda {
namespace {

constexpr int kWarps = 8, kThreads = 32 * kWarps;
constexpr int kRows = 16;   // of W in a block
constexpr int kSlab = 32;   // of k: two matrix instructions
constexpr int kUnroll = 4;  // slabs whose loads are in flight together

__device__ __forceinline__ void multiply(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                         uint32_t b0, uint32_t b1) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
#endif
}

// W is read once: it should not displace anything.
__device__ __forceinline__ uint4 stream_in(const Bf16* p) {
  uint4 v;
  asm("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
      : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
      : "l"(p));
  return v;
}

struct Narrow {
  const Bf16* x;
  const Bf16* w;
  Bf16* y;
  const Bf16* addend;
  int rows, n, k;
  int64_t ldx, ldy;
};

// kTiles: eights of rows of X.
template <int kTiles>
__global__ void __launch_bounds__(kThreads, kTiles == 1 ? 3 : 2) narrow(Narrow p) {
  await_previous();
  __shared__ float sums[kWarps][kRows][kTiles * 8 + 1];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = lane / 4, part = lane % 4;
  const int first = blockIdx.x * kRows;
  const Bf16* const w0 = p.w + static_cast<int64_t>(first + row) * p.k + part * 8;
  const Bf16* const w1 = w0 + int64_t{8} * p.k;
  float c[kTiles][4] = {};
  const int slabs = p.k / kSlab;
  for (int slab = warp; slab < slabs; slab += kWarps * kUnroll) {
    uint4 a[kUnroll][2];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int s = slab + u * kWarps;
      if (s < slabs) {
        a[u][0] = stream_in(w0 + s * kSlab);
        a[u][1] = stream_in(w1 + s * kSlab);
      }
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int s = slab + u * kWarps;
      if (s >= slabs) break;
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        const int column = tile * 8 + row;
        uint4 b{};
        if (column < p.rows)
          b = __ldg(reinterpret_cast<const uint4*>(p.x + column * p.ldx + s * kSlab + part * 8));
        multiply(c[tile], a[u][0].x, a[u][1].x, a[u][0].y, a[u][1].y, b.x, b.y);
        multiply(c[tile], a[u][0].z, a[u][1].z, a[u][0].w, a[u][1].w, b.z, b.w);
      }
    }
  }
  // c0, c1: row `row`, columns 2 part and 2 part + 1; c2, c3: row + 8.
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[warp][row + i / 2 * 8][tile * 8 + part * 2 + i % 2] = c[tile][i];
  __syncthreads();
  for (int i = threadIdx.x; i < kRows * p.rows; i += kThreads) {
    const int column = i / kRows, r = i % kRows;
    float sum = 0;
#pragma unroll
    for (int v = 0; v < kWarps; ++v) sum += sums[v][r][column];
    const int64_t at = column * p.ldy + first + r;
    if (p.addend != nullptr) sum += values<Bf16, 1>(fetch<1>(p.addend + at)).v[0];
    put<1>(p.y + at, packed<Bf16, 1>({{sum}}));
  }
}

bool whole(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

}  // namespace

bool is_narrow(const GemmArgs& g) {
  const bool types =
      g.a_type == base::DType::BF16 && g.b_type == base::DType::BF16 && g.c_type == base::DType::BF16;
  return types && !g.trans_a && g.trans_b && !g.accumulate && g.m > 0 && g.m <= kNarrowRows &&
         g.n % kRows == 0 && g.k % kSlab == 0 && g.k > 0 && g.ldb == g.k && g.lda % 8 == 0 && whole(g.a) &&
         whole(g.b) && g.n > 0;
}

void narrow_matmul(const GemmArgs& g, Stream stream) {
  const Narrow p{.x = static_cast<const Bf16*>(g.a),
                 .w = static_cast<const Bf16*>(g.b),
                 .y = static_cast<Bf16*>(g.c),
                 .addend = static_cast<const Bf16*>(g.addend),
                 .rows = static_cast<int>(g.m),
                 .n = static_cast<int>(g.n),
                 .k = static_cast<int>(g.k),
                 .ldx = g.lda,
                 .ldy = g.ldc};
  const unsigned blocks = static_cast<unsigned>(g.n / kRows);
  if (g.m <= 8)
    narrow<1><<<blocks, kThreads, 0, stream>>>(p);
  else if (g.m <= 16)
    narrow<2><<<blocks, kThreads, 0, stream>>>(p);
  else
    narrow<4><<<blocks, kThreads, 0, stream>>>(p);
  check_launch("narrow_matmul");
}

}  // namespace quintet::kernels::cuda

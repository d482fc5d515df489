// A block has 128 rows of W and a range of k. One thread copies boxes of W and X into shared memory, as far
// ahead as there are stages, and where nothing writes W it begins before the previous kernel has finished;
// four warps multiply 64 rows of W by 32 rows of X at a time, rows of X that do not exist being zeros. Where
// W has too few rows to keep most multiprocessors reading, the blocks of a cluster divide k, and each adds up
// a share of their sums, in order. None of this depends on the number of rows of X, nor do the bits.
#include "kernels/cuda/matmul/narrow.h"
#include "kernels/cuda/matmul/narrow_hopper.h"
#include "kernels/cuda/matmul/wgmma.cuh"
#include "kernels/cuda/support/cluster.cuh"
#include "kernels/cuda/support/launch.cuh"
#include "kernels/cuda/support/tensor_map.h"
#include "kernels/cuda/support/vector16.cuh"

namespace quintet::kernels::cuda {
namespace {

constexpr int kRows = 128, kColumns = static_cast<int>(kNarrowRows), kSlab = 64;  // of W, of X, of k
constexpr int kBytesW = kRows * kSlab * 2, kBytesX = kColumns * kSlab * 2, kStageBytes = kBytesW + kBytesX;
// One block per multiprocessor: its stages are what is in flight while small kernels run between two matmuls.
constexpr int kStages = 10;
constexpr int kSharedBytes = kStages * kStageBytes + 1024;  // boxes start at multiples of 1024 bytes
constexpr int kPitch = kRows + 4;  // floats between the sums of two rows of X: no bank conflicts
static_assert(kColumns * kPitch * 4 <= kStages * kStageBytes);
constexpr int kWorkers = 128, kThreads = kWorkers + 32;
constexpr int kMaxSplits = 8, kWantedBlocks = 96, kMinSlabs = 4;

struct Narrow {
  Bf16* y;
  const Bf16* addend;
  int rows, n, slabs;  // slabs of k in all
  int64_t ldy;
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
// d += a b: 64 x 16 by 16 x 32. Registers as in wgmma.cuh.
__device__ __forceinline__ void add_narrow(float (&d)[16], uint64_t a, uint64_t b) {
  asm volatile(
      "{\n\t.reg .pred add;\n\tsetp.ne.b32 add, 1, 0;\n\t"
      "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, "
      "%11, %12, %13, %14, %15}, %16, %17, add, 1, 1, 0, 0;\n\t}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
      : "l"(a), "l"(b));
}
__device__ __forceinline__ void prefetch_map(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
__device__ __forceinline__ void meet_cluster() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// Four words that block `rank` of a cluster of kSplits has at the address `mine` of its own shared memory.
template <int kSplits>
__device__ __forceinline__ float4 read_block(uint32_t mine, int rank) {
  float4 v;
  if constexpr (kSplits == 1) {
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "r"(mine)
                 : "memory");
  } else {
    uint32_t at;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(at) : "r"(mine), "r"(rank));
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "r"(at)
                 : "memory");
  }
  return v;
}
__device__ __forceinline__ void meet_workers() { asm volatile("bar.sync 1, %0;" ::"n"(kWorkers) : "memory"); }
#endif

// Code for older GPUs, which only traps, cannot have clusters.
#if defined(QUINTET_SM90A) && (!defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL))
#define QUINTET_CLUSTER(blocks) __cluster_dims__(1, blocks, 1)
#else
#define QUINTET_CLUSTER(blocks)
#endif
template <int kSplits, bool kConstant>
__global__ void QUINTET_CLUSTER(kSplits) __launch_bounds__(kThreads, 1)
    narrow_hopper(const __grid_constant__ CUtensorMap map_w, const __grid_constant__ CUtensorMap map_x,
                  Narrow p) {
  allow_next();
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ unsigned char memory[];
  __shared__ alignas(8) uint64_t full[kStages], empty[kStages];
  const int thread = static_cast<int>(threadIdx.x), first = static_cast<int>(blockIdx.x) * kRows;
  const int split = static_cast<int>(blockIdx.y);
  const int begin = p.slabs * split / kSplits, slabs = p.slabs * (split + 1) / kSplits - begin;
  const uint32_t boxes = (shared_address(memory) + 1023) / 1024 * 1024;
  if (thread == 0) {
    for (int s = 0; s < kStages; ++s) {
      make_barrier(&full[s], 1);
      make_barrier(&empty[s], 1);
    }
    publish_barriers();
  }
  __syncthreads();
  if (thread >= kWorkers) {
    if (thread == kWorkers) {
      const auto copy_w = [&](int stage, int slab) {
        announce(&full[stage], kStageBytes);
        copy_box(boxes + static_cast<uint32_t>(stage * kStageBytes), &map_w, (begin + slab) * kSlab, first,
                 &full[stage]);
      };
      const auto copy_x = [&](int stage, int slab) {
        copy_box(boxes + static_cast<uint32_t>(stage * kStageBytes + kBytesW), &map_x, (begin + slab) * kSlab,
                 0, &full[stage]);
      };
      const int ahead = min(kStages, slabs);
      prefetch_map(&map_w);
      prefetch_map(&map_x);
      if constexpr (kConstant)
        for (int slab = 0; slab < ahead; ++slab) copy_w(slab, slab);
      await_writes();
      if constexpr (!kConstant)
        for (int slab = 0; slab < ahead; ++slab) copy_w(slab, slab);
      for (int slab = 0; slab < ahead; ++slab) copy_x(slab, slab);
      int stage = 0;
      uint32_t turn = 0;
      for (int slab = ahead; slab < slabs; ++slab) {
        await_turn(&empty[stage], turn);
        copy_w(stage, slab);
        copy_x(stage, slab);
        if (++stage == kStages) stage = 0, turn ^= 1;
      }
    }
    __syncwarp();
    if constexpr (kSplits > 1) {
      meet_cluster();
      meet_cluster();
    }
    return;
  }
  float d[2][16] = {};
  int stage = 0, before = 0;
  uint32_t turn = 0;
  for (int slab = 0; slab < slabs; ++slab) {
    await_turn(&full[stage], turn);
    const uint32_t at = boxes + static_cast<uint32_t>(stage * kStageBytes);
    const uint64_t w = describe<true>(at), x = describe<true>(at + kBytesW);
    begin_products();
#pragma unroll
    for (int k = 0; k < kSlab / 16; ++k)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        add_narrow(d[half], w + half * (8192 >> 4) + k * kNextK16<true>, x + k * kNextK16<true>);
    end_products();
    await_products<1>();
    if (slab > 0 && thread == 0) arrive(&empty[before]);
    before = stage;
    if (++stage == kStages) stage = 0, turn ^= 1;
  }
  await_products<0>();
  // Sums take the place of the stages, which no warp reads any more: [rows of X, rows of W].
  meet_workers();
  const uint32_t sums = boxes;
  const int lane = thread % 32, row = thread / 32 * 16 + lane / 4;
#pragma unroll
  for (int half = 0; half < 2; ++half)
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const int column = i / 4 * 8 + lane % 4 * 2 + i % 2, r = half * 64 + row + i % 4 / 2 * 8;
      if (column < p.rows)
        asm volatile("st.shared.f32 [%0], %1;" ::"r"(sums + static_cast<uint32_t>(column * kPitch + r) * 4),
                     "f"(d[half][i])
                     : "memory");
    }
  if constexpr (kSplits > 1)
    meet_cluster();
  else
    meet_workers();
  await_writes();  // of the addend, and of what y held
  constexpr int kEights = kRows / 8;
  for (int i = thread * kSplits + split; i < p.rows * kEights; i += kWorkers * kSplits) {
    const int column = i / kEights, r = i % kEights * 8;
    if (first + r >= p.n) continue;
    Vals<float, 8> sum{};
    const uint32_t at = sums + static_cast<uint32_t>(column * kPitch + r) * 4;
#pragma unroll
    for (int s = 0; s < kSplits; ++s) {
      const float4 low = read_block<kSplits>(at, s), high = read_block<kSplits>(at + 16, s);
      const float term[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
      for (int j = 0; j < 8; ++j) sum.v[j] += term[j];
    }
    const int64_t to = column * p.ldy + first + r;
    if (p.addend != nullptr) {
      const auto more = load<8>(p.addend + to);
#pragma unroll
      for (int j = 0; j < 8; ++j) sum.v[j] += more.v[j];
    }
    store<8>(p.y + to, sum);
  }
  if constexpr (kSplits > 1) meet_cluster();  // the others have read this block's sums
#else
  __trap();  // narrow_on_hopper() is false in such builds
#endif
}

#undef QUINTET_CLUSTER

// A function of the sizes of W alone.
int splits_of(int64_t n, int64_t slabs) {
  const int64_t blocks = (n + kRows - 1) / kRows;
  int splits = 1;
  while (blocks * splits < kWantedBlocks && splits < kMaxSplits && slabs / (2 * splits) >= kMinSlabs)
    splits *= 2;
  return splits;
}

bool is_hopper() {
#if defined(QUINTET_SM90A)
  int device = 0, major = 0, minor = 0;
  check(cudaGetDevice(&device), "narrow_matmul");
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "narrow_matmul");
  check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), "narrow_matmul");
  return major == 9 && minor == 0 && has_tensor_maps();
#else
  return false;
#endif
}

CUtensorMap describe_rows(const void* from, int64_t k, int64_t rows, int64_t stride, int box_rows) {
  return describe_tensor(
      from, base::DType::BF16,
      {.rank = 2, .sizes = {k, rows, 1}, .strides = {stride * 2, 0}, .box = {kSlab, box_rows, 1}},
      "narrow_matmul");
}

template <int kSplits, bool kConstant>
void launch(const GemmArgs& g, const Narrow& p, Stream stream) {
  const CUtensorMap w = describe_rows(g.b, g.k, g.n, g.ldb, kRows),
                    x = describe_rows(g.a, g.k, g.m, g.lda, kColumns);
  const auto kernel = narrow_hopper<kSplits, kConstant>;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes),
        "narrow_matmul");
  const dim3 grid(static_cast<unsigned>((p.n + kRows - 1) / kRows), static_cast<unsigned>(kSplits));
  kernel<<<grid, kThreads, kSharedBytes, stream>>>(w, x, p);
  check_launch("narrow_matmul");
}

template <int kSplits>
void launch(const GemmArgs& g, const Narrow& p, bool constant, Stream stream) {
  if (constant)
    launch<kSplits, true>(g, p, stream);
  else
    launch<kSplits, false>(g, p, stream);
}

}  // namespace

bool narrow_on_hopper(const GemmArgs& g, bool constant, Stream stream) {
  if (g.ldc % 8 != 0 || !all_aligned16(g.c, g.addend) || !is_hopper()) return false;
  const Narrow p{.y = static_cast<Bf16*>(g.c),
                 .addend = static_cast<const Bf16*>(g.addend),
                 .rows = static_cast<int>(g.m),
                 .n = static_cast<int>(g.n),
                 .slabs = static_cast<int>(g.k / kSlab),
                 .ldy = g.ldc};
  switch (splits_of(g.n, p.slabs)) {
    case 1:
      launch<1>(g, p, constant, stream);
      break;
    case 2:
      launch<2>(g, p, constant, stream);
      break;
    case 4:
      launch<4>(g, p, constant, stream);
      break;
    default:
      launch<8>(g, p, constant, stream);
  }
  return true;
}

}  // namespace quintet::kernels::cuda

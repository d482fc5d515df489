#include <cuda.h>

#include "kernels/cuda/matmul/grouped_hopper.h"
#include "kernels/cuda/matmul/wgmma.cuh"
#include "kernels/cuda/support/launch.cuh"
#include "kernels/cuda/support/vector16.cuh"

namespace quintet::kernels::cuda {
namespace {

// Tiles of 128 x 256 elements of the result, over all experts, with persistent blocks: one thread prefetches
// boxes of the operands into shared memory, up to kStages ahead and into the next tile; two groups of four
// warps have 64 rows of the tile each.
inline constexpr int kM = 128, kN = 256, kK = 64, kStages = 4;
inline constexpr int kGroupThreads = 128, kThreads = 3 * kGroupThreads;
inline constexpr int kBytesA = kM * kK * 2, kBytesB = kN * kK * 2, kStageBytes = kBytesA + kBytesB;
inline constexpr int kMaxExperts = 1024;
// Boxes start at multiples of 1024 bytes, for the swizzle.
inline constexpr int kSharedBytes = kStages * kStageBytes + 1024;

template <class C>
struct Problem {
  C* c;
  const C* addend;  // null: none
  bool accumulate;  // c += the result
  int m, n, k;      // per expert; m (k for dw) is replaced by its number of rows
  int experts;
  const int64_t* begin;
};

// Iterates over the tiles of a block.
template <bool kWeights>
struct Tiles {
  const int* begin;  // of the experts' rows
  int experts, m, n, tile, expert = 0, before = 0;

  __device__ int rows() const { return begin[expert + 1] - begin[expert]; }
  __device__ int tiles_m() const { return ((kWeights ? m : rows()) + kM - 1) / kM; }
  // False when there is none left.
  __device__ bool find() {
    const int tiles_n = (n + kN - 1) / kN;
    for (; expert < experts; ++expert) {
      const int tiles = tiles_m() * tiles_n;
      if (tile < before + tiles) return true;
      before += tiles;
    }
    return false;
  }
  // Consecutive tiles have the same columns: they share the larger operand's boxes in the cache.
  __device__ int first_m() const { return (tile - before) % tiles_m() * kM; }
  __device__ int first_n() const { return (tile - before) / tiles_m() * kN; }
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
// Four lanes with two columns of each of four eights become four lanes with one eight each.
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

// Stores rows of a tile from registers to c.
template <class C>
__device__ __forceinline__ void store_tile(const Problem<C>& a, float (&d)[128], int64_t first_row, int rows,
                                           int row0, int n0) {
  const int thread = static_cast<int>(threadIdx.x) % kGroupThreads, lane = thread % 32, quarter = lane % 4;
  const C* const more = a.addend != nullptr ? a.addend : a.accumulate ? a.c : nullptr;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = row0 + thread / 32 * 16 + lane / 4 + half * 8;
    const bool inside = row < rows;
    const int64_t at = (first_row + row) * a.n + n0;
#pragma unroll
    for (int j = 0; j < kN / 8; j += 4) {
      Vals<float, 2> pair[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int column = (j + i) * 8 + quarter * 2;
        pair[i] = {{d[(j + i) * 4 + half * 2], d[(j + i) * 4 + half * 2 + 1]}};
        if (more != nullptr && inside && n0 + column < a.n) {
          const auto o = load<2>(more + at + column);
          pair[i].v[0] += o.v[0];
          pair[i].v[1] += o.v[1];
        }
      }
      if constexpr (sizeof(C) == 2) {
        uint32_t p[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) p[i] = packed<C, 2>(pair[i]).raw;
        transpose_quad(p, lane);
        const int column = (j + quarter) * 8;
        if (inside && n0 + column < a.n)
          *reinterpret_cast<uint4*>(a.c + at + column) = make_uint4(p[0], p[1], p[2], p[3]);
      } else {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int column = (j + i) * 8 + quarter * 2;
          if (inside && n0 + column < a.n) store<2>(a.c + at + column, pair[i]);
        }
      }
    }
  }
}
#endif

// Forward: x w^T, both with k contiguous. Dx: dy w, where rows of w run along k. Dw: dy^T x, where the rows
// of both, an expert's rows, run along k.
template <GroupedGemm kWhich, class T, class C>
__global__ void __launch_bounds__(kThreads, 1)
    grouped_kernel(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
                   Problem<C> a) {
  await_previous();
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  constexpr bool kWeights = kWhich == GroupedGemm::Dw, kMajorKOfA = !kWeights,
                 kMajorKOfB = kWhich == GroupedGemm::Forward;
  extern __shared__ unsigned char memory[];
  __shared__ alignas(8) uint64_t full[kStages], empty[kStages];
  __shared__ int begin[kMaxExperts + 1];
  const uint32_t boxes = (shared_address(memory) + 1023) / 1024 * 1024;
  const auto stage_a = [&](int stage) { return boxes + static_cast<uint32_t>(stage * kStageBytes); };
  const auto stage_b = [&](int stage) { return stage_a(stage) + kBytesA; };
  const int thread = static_cast<int>(threadIdx.x), group = thread / kGroupThreads;
  for (int e = thread; e <= a.experts; e += kThreads) begin[e] = static_cast<int>(a.begin[e]);
  if (thread == 0) {
    for (int s = 0; s < kStages; ++s) {
      make_barrier(&full[s], 1);
      make_barrier(&empty[s], 2);  // the two groups that run MMAs
    }
    publish_barriers();
  }
  __syncthreads();
  Tiles<kWeights> tiles{begin, a.experts, a.m, a.n, static_cast<int>(blockIdx.x)};
  const auto steps_of = [&] { return ((kWeights ? tiles.rows() : a.k) + kK - 1) / kK; };
  int stage = 0;
  uint32_t turn = 0;
  const auto advance = [&] {
    if (++stage == kStages) {
      stage = 0;
      turn ^= 1;
    }
  };
  if (group == 2) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (thread % kGroupThreads != 0) return;
    for (; tiles.find(); tiles.tile += static_cast<int>(gridDim.x)) {
      const int m0 = tiles.first_m(), n0 = tiles.first_n(), first = begin[tiles.expert], steps = steps_of();
      for (int step = 0; step < steps; ++step, advance()) {
        const int k0 = step * kK;
        uint64_t* const barrier = &full[stage];
        await_turn(&empty[stage], turn ^ 1);
        announce(barrier, kStageBytes);
        if constexpr (kWeights) {
          for (int i = 0; i < kM / 64; ++i)
            copy_box(stage_a(stage) + static_cast<uint32_t>(i * 8192), &map_a, m0 + i * 64, first + k0,
                     barrier);
          for (int i = 0; i < kN / 64; ++i)
            copy_box(stage_b(stage) + static_cast<uint32_t>(i * 8192), &map_b, n0 + i * 64, first + k0,
                     barrier);
        } else {
          copy_box(stage_a(stage), &map_a, k0, first + m0, barrier);
          if constexpr (kMajorKOfB)
            copy_box(stage_b(stage), &map_b, k0, n0, tiles.expert, barrier);
          else
            for (int i = 0; i < kN / 64; ++i)
              copy_box(stage_b(stage) + static_cast<uint32_t>(i * 8192), &map_b, n0 + i * 64, k0,
                       tiles.expert, barrier);
        }
      }
    }
    return;
  }
  asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
  for (; tiles.find(); tiles.tile += static_cast<int>(gridDim.x)) {
    const int m0 = tiles.first_m(), n0 = tiles.first_n(), rows = tiles.rows(), steps = steps_of();
    if (kWeights && a.accumulate && rows == 0) continue;
    float d[128];
#pragma unroll
    for (float& x : d) x = 0;
    int before = 0;  // the stage whose MMAs may still run
    for (int step = 0; step < steps; ++step, advance()) {
      await_turn(&full[stage], turn);
      if constexpr (kWeights) {
        // Rows past the expert's last are the next expert's, or were never written.
        const int valid = rows - step * kK;
        if (valid < kK) {
          for (int at = thread; at < (kM + kN) / 64 * (kK - valid) * 8; at += 2 * kGroupThreads) {
            const int box = at / ((kK - valid) * 8), in_box = at % ((kK - valid) * 8);
            const uint32_t place =
                stage_a(stage) + static_cast<uint32_t>(box * 8192 + (valid * 8 + in_box) * 16);
            asm volatile("st.shared.v4.u32 [%0], {%1, %1, %1, %1};" ::"r"(place), "r"(0) : "memory");
          }
          asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
          asm volatile("bar.sync 1, 256;" ::: "memory");  // both groups have zeroed
        }
      }
      const uint64_t left = describe<kMajorKOfA>(stage_a(stage) + static_cast<uint32_t>(group * 8192)),
                     right = describe<kMajorKOfB>(stage_b(stage));
      begin_products();
#pragma unroll
      for (int k = 0; k < kK / 16; ++k)
        add_product<T, kMajorKOfA, kMajorKOfB>(d, left + k * kNextK16<kMajorKOfA>,
                                               right + k * kNextK16<kMajorKOfB>);
      end_products();
      await_products<1>();
      if (step > 0 && thread % kGroupThreads == 0) arrive(&empty[before]);
      before = stage;
    }
    await_products<0>();
    if (steps > 0 && thread % kGroupThreads == 0) arrive(&empty[before]);
    store_tile(a, d, kWeights ? int64_t{tiles.expert} * a.m : begin[tiles.expert], kWeights ? a.m : rows,
               m0 + group * 64, n0);
  }
#else
  __trap();  // resident_blocks() is 0 in such builds
#endif
}

// The driver's function that encodes a tensor map, found at run time: nothing else here needs the driver API.
using Encode = decltype(&cuTensorMapEncodeTiled);
Encode encoder() {
  static const Encode found = [] {
    void* at = nullptr;
    cudaDriverEntryPointQueryResult result{};
    const auto status =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &at, 12000, cudaEnableDefault, &result);
    return status == cudaSuccess && result == cudaDriverEntryPointSuccess ? reinterpret_cast<Encode>(at)
                                                                          : nullptr;
  }();
  return found;
}

// A matrix of rows of `inner` elements, or a stack of them, that is copied in boxes of 64 columns.
CUtensorMap describe_matrix(const void* from, base::DType type, int64_t inner, int64_t rows, int64_t matrices,
                            int box_rows) {
  CUtensorMap map{};
  const cuuint64_t sizes[3] = {static_cast<cuuint64_t>(inner), static_cast<cuuint64_t>(rows),
                               static_cast<cuuint64_t>(matrices)};
  const cuuint64_t strides[2] = {static_cast<cuuint64_t>(inner) * 2,
                                 static_cast<cuuint64_t>(inner) * static_cast<cuuint64_t>(rows) * 2};
  const cuuint32_t box[3] = {64, static_cast<cuuint32_t>(box_rows), 1}, steps[3] = {1, 1, 1};
  const CUresult status = encoder()(
      &map, type == base::DType::BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
      matrices > 0 ? 3 : 2, const_cast<void*>(from), sizes, strides, box, steps,
      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS)
    fail("grouped_linear: the driver cannot encode a tensor map of " + std::to_string(rows) + " x " +
         std::to_string(inner) + " (error " + std::to_string(static_cast<int>(status)) + ")");
  return map;
}

// One block per SM; 0 where the GPU or the build lacks the instructions: only sm_90a code has them, which no
// query distinguishes from other code for Hopper.
int resident_blocks() {
#if defined(QUINTET_SM90A)
  int device = 0, major = 0, minor = 0, processors = 0;
  check(cudaGetDevice(&device), "grouped_linear");
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "grouped_linear");
  check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), "grouped_linear");
  check(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device), "grouped_linear");
  return major == 9 && minor == 0 ? processors : 0;
#else
  return 0;
#endif
}

template <GroupedGemm kWhich, class T, class C>
void launch(const GroupedArgs& g, const int64_t* begin, int blocks, Stream stream) {
  constexpr bool kWeights = kWhich == GroupedGemm::Dw, kForward = kWhich == GroupedGemm::Forward;
  // For dw, dy and x have 64 rows of k in a box; otherwise x or dy has rows of m, w of n or of k.
  const int64_t width_a = kForward ? g.in : g.out;
  const CUtensorMap a = describe_matrix(g.a, g.type, width_a, g.rows, 0, kWeights ? kK : kM);
  const CUtensorMap b = kWeights ? describe_matrix(g.b, g.type, g.in, g.rows, 0, kK)
                                 : describe_matrix(g.b, g.type, g.in, g.out, g.experts, kForward ? kN : kK);
  const Problem<C> problem{.c = static_cast<C*>(g.c),
                           .addend = static_cast<const C*>(kWhich == GroupedGemm::Dx ? g.addend : nullptr),
                           .accumulate = kWeights && g.accumulate,
                           .m = static_cast<int>(g.out),
                           .n = static_cast<int>(kForward ? g.out : g.in),
                           .k = static_cast<int>(kForward ? g.in : g.out),
                           .experts = static_cast<int>(g.experts),
                           .begin = begin};
  const auto kernel = grouped_kernel<kWhich, T, C>;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes),
        "grouped_linear");
  kernel<<<static_cast<unsigned>(blocks), kThreads, kSharedBytes, stream>>>(a, b, problem);
  check_launch("grouped_linear");
}

template <class T>
void launch(GroupedGemm which, const GroupedArgs& g, const int64_t* begin, int blocks, Stream stream) {
  const auto with_result = [&]<class C>(C) {
    if (which == GroupedGemm::Forward)
      launch<GroupedGemm::Forward, T, C>(g, begin, blocks, stream);
    else if (which == GroupedGemm::Dx)
      launch<GroupedGemm::Dx, T, C>(g, begin, blocks, stream);
    else
      launch<GroupedGemm::Dw, T, C>(g, begin, blocks, stream);
  };
  if (g.c_type == base::DType::F32)
    with_result(float{});
  else
    with_result(T{});
}

}  // namespace

bool grouped_on_hopper(GroupedGemm which, const GroupedArgs& g, const int64_t* begin, Stream stream) {
  using base::DType;
  const bool types =
      (g.type == DType::BF16 || g.type == DType::F16) && (g.c_type == DType::F32 || g.c_type == g.type);
  // Boxes may extend past the last row, but there must be one.
  constexpr int64_t kMaxSize = int64_t{1} << 30;
  if (!types || g.in <= 0 || g.out <= 0 || g.in % 8 != 0 || g.out % 8 != 0 || g.rows <= 0 ||
      g.experts > kMaxExperts || g.rows > kMaxSize || g.in > kMaxSize || g.out > kMaxSize ||
      !all_aligned16(g.a, g.b, g.c, g.addend) || encoder() == nullptr)
    return false;
  const int blocks = resident_blocks();
  if (blocks == 0) return false;
  if (g.type == DType::BF16)
    launch<Bf16>(which, g, begin, blocks, stream);
  else
    launch<F16>(which, g, begin, blocks, stream);
  return true;
}

}  // namespace quintet::kernels::cuda

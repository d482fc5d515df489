#include "kernels/cuda/matmul/grouped_hopper.h"
#include "kernels/cuda/matmul/grouped_matmul.h"
#include "kernels/cuda/matmul/tile_matmul.cuh"

namespace quintet::kernels::cuda {
namespace {

// Workspace: where each expert's rows begin (experts + 1 numbers).
__global__ void __launch_bounds__(kMatmulThreads)
    begin_kernel(const int32_t* received, int sources, int experts, int64_t rows, int64_t* begin) {
  await_previous();
  for (int e = static_cast<int>(threadIdx.x); e < experts; e += kMatmulThreads) {
    int64_t count = 0;
    for (int s = 0; s < sources; ++s) count += received[static_cast<int64_t>(s) * experts + e];
    begin[e + 1] = count;
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  int64_t sum = 0;
  begin[0] = 0;
  for (int e = 0; e < experts; ++e) {
    sum += begin[e + 1];
    begin[e + 1] = sum < rows ? sum : rows;
  }
}

// A block's expert and tile of rows, among all tiles of all experts. False when there are fewer tiles.
template <int kM>
__device__ __forceinline__ bool find_tile(const int64_t* begin, int experts, int& expert, int64_t& tile) {
  __shared__ int found;
  __shared__ int64_t found_tile;
  if (threadIdx.x == 0) {
    int64_t left = blockIdx.y;
    found = -1;
    for (int e = 0; e < experts; ++e) {
      const int64_t tiles = (begin[e + 1] - begin[e] + kM - 1) / kM;
      if (left < tiles) {
        found = e;
        found_tile = left;
        break;
      }
      left -= tiles;
    }
  }
  __syncthreads();
  expert = found;
  tile = found_tile;
  return expert >= 0;
}

// x w^T, or with kDx dy w: rows are grouped by expert.
template <bool kDx, bool kWideRows, class T, class C>
__global__ void __launch_bounds__(kMatmulThreads)
    rows_kernel(const T* x, const T* w, C* y, const C* addend, int64_t n, int64_t k, int experts,
                const int64_t* begin) {
  await_previous();
  using Tile = TileFor<T, T, false, !kDx, kWideRows>;
  __shared__ typename Tile::Memory memory;
  int expert;
  int64_t tile;
  if (!find_tile<Tile::kM>(begin, experts, expert, tile)) return;
  const int64_t first = begin[expert], rows = begin[expert + 1] - first;
  const TileMatmul<T, T, C> product{x + first * k,
                                    k,
                                    w + expert * n * k,
                                    kDx ? n : k,
                                    y + first * n,
                                    n,
                                    addend != nullptr ? addend + first * n : nullptr,
                                    false,
                                    rows,
                                    n,
                                    k};
  Tile::run(product, tile * Tile::kM, static_cast<int64_t>(blockIdx.x) * Tile::kN, memory);
}

// dy^T x, summed over an expert's rows.
template <bool kWideRows, class T, class C>
__global__ void __launch_bounds__(kMatmulThreads)
    weights_kernel(const T* dy, const T* x, C* dw, bool accumulate, int64_t m, int64_t n,
                   const int64_t* begin) {
  await_previous();
  using Tile = TileFor<T, T, true, false, kWideRows>;
  __shared__ typename Tile::Memory memory;
  const int64_t expert = blockIdx.z, first = begin[expert];
  const TileMatmul<T, T, C> product{
      dy + first * m,           m, x + first * n, n, dw + expert * m * n, n, nullptr, accumulate, m, n,
      begin[expert + 1] - first};
  if (product.k == 0 && accumulate) return;
  Tile::run(product, static_cast<int64_t>(blockIdx.y) * Tile::kM, static_cast<int64_t>(blockIdx.x) * Tile::kN,
            memory);
}

bool wide(const GroupedArgs& g) {
  return g.out % 8 == 0 && g.in % 8 == 0 && aligned16(g.a) && aligned16(g.b);
}

int64_t* find_begins(const GroupedArgs& g, void* workspace, Stream stream) {
  auto* const begin = static_cast<int64_t*>(workspace);
  begin_kernel<<<1, kMatmulThreads, 0, stream>>>(g.received, static_cast<int>(g.sources),
                                                 static_cast<int>(g.experts), g.rows, begin);
  check_launch("grouped_linear");
  return begin;
}

template <bool kDx, bool kWideRows, class T, class C>
void launch_rows(const GroupedArgs& g, const int64_t* begin, Stream stream) {
  using Tile = TileFor<T, T, false, !kDx, kWideRows>;
  const int64_t n = kDx ? g.in : g.out, k = kDx ? g.out : g.in;
  // Every expert may start one tile more than its rows fill.
  const int64_t tiles = divide_up(g.rows, Tile::kM) + g.experts;
  if (tiles > 65535) fail("grouped_linear: " + std::to_string(g.rows) + " rows are too many for one launch");
  const dim3 grid(static_cast<unsigned>(divide_up(n, Tile::kN)), static_cast<unsigned>(tiles));
  rows_kernel<kDx, kWideRows, T, C><<<grid, kMatmulThreads, 0, stream>>>(
      static_cast<const T*>(g.a), static_cast<const T*>(g.b), static_cast<C*>(g.c),
      static_cast<const C*>(kDx ? g.addend : nullptr), n, k, static_cast<int>(g.experts), begin);
  check_launch("grouped_linear");
}

template <bool kWideRows, class T, class C>
void launch_weights(const GroupedArgs& g, const int64_t* begin, Stream stream) {
  using Tile = TileFor<T, T, true, false, kWideRows>;
  const dim3 grid(static_cast<unsigned>(divide_up(g.in, Tile::kN)),
                  static_cast<unsigned>(divide_up(g.out, Tile::kM)), static_cast<unsigned>(g.experts));
  weights_kernel<kWideRows, T, C>
      <<<grid, kMatmulThreads, 0, stream>>>(static_cast<const T*>(g.a), static_cast<const T*>(g.b),
                                            static_cast<C*>(g.c), g.accumulate, g.out, g.in, begin);
  check_launch("grouped_linear_dw");
}

// Calls fn<T, C>(wide) for the types of a GEMM.
template <class F>
void with_types(const GroupedArgs& g, const F& fn) {
  using base::DType;
  if (g.type == DType::F64 && g.c_type == DType::F64) return fn(double{}, double{}, std::false_type{});
  if (g.type == DType::F32 && g.c_type == DType::F32) return fn(float{}, float{}, std::false_type{});
  if (g.type == DType::BF16 && g.c_type == DType::F32)
    return wide(g) ? fn(Bf16{}, float{}, std::true_type{}) : fn(Bf16{}, float{}, std::false_type{});
  if (g.type == DType::BF16 && g.c_type == DType::BF16)
    return wide(g) ? fn(Bf16{}, Bf16{}, std::true_type{}) : fn(Bf16{}, Bf16{}, std::false_type{});
  if (g.type == DType::F16 && g.c_type == DType::F32)
    return wide(g) ? fn(F16{}, float{}, std::true_type{}) : fn(F16{}, float{}, std::false_type{});
  if (g.type == DType::F16 && g.c_type == DType::F16)
    return wide(g) ? fn(F16{}, F16{}, std::true_type{}) : fn(F16{}, F16{}, std::false_type{});
  fail("grouped_linear: no kernel from " + std::string(base::to_string(g.type)) + " to " +
       std::string(base::to_string(g.c_type)));
}

}  // namespace

void grouped_linear(const GroupedArgs& g, void* workspace, Stream stream) {
  if (g.experts <= 0 || g.rows <= 0 || g.out <= 0) return;
  const int64_t* begin = find_begins(g, workspace, stream);
  if (grouped_on_hopper(GroupedGemm::Forward, g, begin, stream)) return;
  with_types(g, [&]<class T, class C, bool kWideRows>(T, C, std::bool_constant<kWideRows>) {
    launch_rows<false, kWideRows, T, C>(g, begin, stream);
  });
}

void grouped_linear_dx(const GroupedArgs& g, void* workspace, Stream stream) {
  if (g.experts <= 0 || g.rows <= 0 || g.in <= 0) return;
  const int64_t* begin = find_begins(g, workspace, stream);
  if (grouped_on_hopper(GroupedGemm::Dx, g, begin, stream)) return;
  with_types(g, [&]<class T, class C, bool kWideRows>(T, C, std::bool_constant<kWideRows>) {
    launch_rows<true, kWideRows, T, C>(g, begin, stream);
  });
}

void grouped_linear_dw(const GroupedArgs& g, void* workspace, Stream stream) {
  if (g.experts <= 0 || g.out <= 0 || g.in <= 0) return;
  const int64_t* begin = find_begins(g, workspace, stream);
  if (grouped_on_hopper(GroupedGemm::Dw, g, begin, stream)) return;
  with_types(g, [&]<class T, class C, bool kWideRows>(T, C, std::bool_constant<kWideRows>) {
    launch_weights<kWideRows, T, C>(g, begin, stream);
  });
}

}  // namespace quintet::kernels::cuda

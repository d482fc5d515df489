#include "kernels/cuda/experts/router.h"
#include "kernels/cuda/experts/router_mma.cuh"
#include "kernels/cuda/matmul/tile_matmul.cuh"
#include "kernels/cuda/reduce/column_reduce.cuh"

namespace quintet::kernels::cuda {
namespace {

template <class Tile, class A, class B, class C>
__global__ void __launch_bounds__(kMatmulThreads)
    product_kernel(const __grid_constant__ TileMatmul<A, B, C> product) {
  await_previous();
  __shared__ typename Tile::Memory memory;
  Tile::run(product, static_cast<int64_t>(blockIdx.y) * Tile::kM, static_cast<int64_t>(blockIdx.x) * Tile::kN,
            memory);
}

template <class Tile, class A, class B, class C>
void launch(const TileMatmul<A, B, C>& p, Stream stream, const char* what) {
  if (p.m <= 0 || p.n <= 0) return;
  // Row tiles are counted in grid.y, which covers at least 4 million rows.
  const int64_t high = divide_up(p.m, Tile::kM);
  if (high > 65535)
    fail(std::string(what) + ": " + std::to_string(p.m) + " rows, at most " +
         std::to_string(int64_t{65535} * Tile::kM) + " are supported");
  const dim3 grid(static_cast<unsigned>(divide_up(p.n, Tile::kN)), static_cast<unsigned>(high));
  product_kernel<Tile, A, B, C><<<grid, kMatmulThreads, 0, stream>>>(p);
  check_launch(what);
}

template <class Tile, class S, class T>
__global__ void __launch_bounds__(kMatmulThreads)
    dw_kernel(const S* dlogits, const T* x, int64_t rows, int64_t routes, int64_t embed, S* partial) {
  await_previous();
  __shared__ typename Tile::Memory memory;
  const int64_t chunk = blockIdx.z, chunks = gridDim.z;
  const int64_t begin = rows * chunk / chunks, end = rows * (chunk + 1) / chunks;
  const TileMatmul<S, T, S> product{dlogits + begin * routes,
                                    routes,
                                    x + begin * embed,
                                    embed,
                                    partial + chunk * routes * embed,
                                    embed,
                                    nullptr,
                                    false,
                                    routes,
                                    embed,
                                    end - begin};
  Tile::run(product, static_cast<int64_t>(blockIdx.y) * Tile::kM, static_cast<int64_t>(blockIdx.x) * Tile::kN,
            memory);
}

template <class Product>
void launch_mma(const Product& p, dim3 grid, Stream stream, const char* what) {
  router_mma_kernel<<<grid, Product::kThreads, 0, stream>>>(p);
  check_launch(what);
}

template <class T, int kTiles, int kHigh, int kRowWarps, int kDepths>
void logits_mma(const RouterShape& s, const T* x, const T* w, float* logits, Stream stream) {
  const RouterLogits<T, kTiles, kHigh, kRowWarps, kDepths> p{x, w, logits, RouterSizes(s)};
  launch_mma(p, dim3(static_cast<unsigned>(p.row_blocks() * p.route_blocks())), stream, "router");
}

template <int kSteps>
void dx_mma(const RouterShape& s, const float* dlogits, const Bf16* w, Bf16* dx, Stream stream) {
  const RouterDx<kSteps> p{dlogits, w, dx, RouterSizes(s)};
  launch_mma(p, dim3(static_cast<unsigned>(p.strips()), static_cast<unsigned>(p.parts())), stream,
             "router_dx");
}

template <int kTiles>
void dw_mma(const RouterShape& s, const float* dlogits, const Bf16* x, float* partial, int64_t chunks,
            Stream stream) {
  using Product = RouterDw<kTiles>;
  const dim3 grid(static_cast<unsigned>(divide_up(s.embed, Product::kColumns)),
                  static_cast<unsigned>(divide_up(s.routes, Product::kRoutes)),
                  static_cast<unsigned>(chunks));
  launch_mma(Product{dlogits, x, partial, RouterSizes(s)}, grid, stream, "router_dw");
}

}  // namespace

template <class T>
void router(const RouterShape& s, const T* x, const T* w, Stat<T>* logits, Stream stream) {
  if (s.rows <= 0 || s.routes <= 0) return;
  if constexpr (kHalf<T>) {
    if (s.embed % 8 == 0 && all_aligned16(x, w)) {
      // The fewer routes, the more warps share the reduction of a row.
      if (s.routes <= 8) return logits_mma<T, 1, 1, 1, 8>(s, x, w, logits, stream);
      if (s.routes <= 16) return logits_mma<T, 2, 2, 1, 8>(s, x, w, logits, stream);
      if (s.routes <= 32) return logits_mma<T, 4, 2, 2, 4>(s, x, w, logits, stream);
      return logits_mma<T, 8, 2, 4, 4>(s, x, w, logits, stream);
    }
  }
  const TileMatmul<T, T, Stat<T>> p{x,       s.embed, w,      s.embed,  logits, s.routes,
                                    nullptr, false,   s.rows, s.routes, s.embed};
  launch<TileFor<T, T, false, true, false>>(p, stream, "router");
}

template <class T>
void router_dx(const RouterShape& s, const Stat<T>* dlogits, const T* w, T* dx, Stream stream) {
  if (s.rows <= 0 || s.embed <= 0) return;
  if constexpr (std::is_same_v<T, Bf16>) {
    if (s.embed % 8 == 0 && s.routes <= 256 && aligned16(dx)) {
      if (s.routes <= 16) return dx_mma<1>(s, dlogits, w, dx, stream);
      if (s.routes <= 32) return dx_mma<2>(s, dlogits, w, dx, stream);
      if (s.routes <= 64) return dx_mma<4>(s, dlogits, w, dx, stream);
      if (s.routes <= 128) return dx_mma<8>(s, dlogits, w, dx, stream);
      return dx_mma<16>(s, dlogits, w, dx, stream);
    }
  }
  const TileMatmul<Stat<T>, T, T> p{dlogits, s.routes, w,      s.embed, dx,      s.embed,
                                    nullptr, false,    s.rows, s.embed, s.routes};
  launch<TileFor<Stat<T>, T, false, false, false>>(p, stream, "router_dx");
}

template <class T, class D>
void router_dw(const RouterShape& s, const Stat<T>* dlogits, const T* x, D* dw, bool accumulate,
               void* workspace, Stream stream) {
  if (s.routes <= 0 || s.embed <= 0) return;
  auto* const partial = static_cast<Stat<T>*>(workspace);
  const int64_t chunks = router_chunks(s.rows);
  const auto by_tiles = [&] {
    using Tile = TileFor<Stat<T>, T, true, false, false>;
    const dim3 grid(static_cast<unsigned>(divide_up(s.embed, Tile::kN)),
                    static_cast<unsigned>(divide_up(s.routes, Tile::kM)), static_cast<unsigned>(chunks));
    dw_kernel<Tile><<<grid, kMatmulThreads, 0, stream>>>(dlogits, x, s.rows, s.routes, s.embed, partial);
    check_launch("router_dw");
  };
  if constexpr (std::is_same_v<T, Bf16>) {
    if (s.embed % 8 != 0 || !aligned16(x))
      by_tiles();
    else if (s.routes <= 16)
      dw_mma<1>(s, dlogits, x, partial, chunks, stream);
    else if (s.routes <= 32)
      dw_mma<2>(s, dlogits, x, partial, chunks, stream);
    else
      dw_mma<4>(s, dlogits, x, partial, chunks, stream);
  } else {
    by_tiles();
  }
  column_total(static_cast<const Stat<T>*>(partial), chunks, s.routes * s.embed, dw, accumulate, stream);
}

#define INSTANTIATE(T)                    \
  template decltype(router<T>) router<T>; \
  template decltype(router_dx<T>) router_dx<T>;
INSTANTIATE(double)
INSTANTIATE(float)
INSTANTIATE(Bf16)
INSTANTIATE(F16)
#undef INSTANTIATE
template decltype(router_dw<double, double>) router_dw<double, double>;
template decltype(router_dw<float, float>) router_dw<float, float>;
template decltype(router_dw<Bf16, float>) router_dw<Bf16, float>;
template decltype(router_dw<F16, float>) router_dw<F16, float>;
template decltype(router_dw<Bf16, Bf16>) router_dw<Bf16, Bf16>;

}  // namespace quintet::kernels::cuda

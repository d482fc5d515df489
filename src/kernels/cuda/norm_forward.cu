#include "kernels/cuda/group.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/norm.h"
#include "kernels/cuda/norm_shape.cuh"

namespace quintet::kernels::cuda {
namespace {

template <class T>
struct Forward {
  const T *x, *residual;  // residual null: none
  const T *w, *b;         // b null: none
  T *sum, *y;
  Stat<T>*mean, *rstd;
  int64_t rows, n;
  double eps;
};

using Shapes =
    NormShapes<NormShape<8, 2, 256, 3, 4>, NormShape<32, 3, 128, 3, 6>, NormShape<32, 4, 128, 3, 5>,
               NormShape<32, 8, 128, 2, 4>, NormShape<0, 4, 256, 3, 2>, NormShape<0, 4, 512, 3, 1>>;

template <class T, class Shape, bool kFull, bool kCentred>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocks) forward_kernel(Forward<T> a) {
  await_previous();
  using S = Stat<T>;
  constexpr int V = kWide<T>, K = Shape::kPacks, kGroup = Shape::kGroup, kRows = Shape::kRows,
                kStages = Shape::kStages;
  extern __shared__ uint4 dynamic[];  // [stage][x, residual][row of the block][pack]
  __shared__ RowSums<Shape, 1, S> sums;
  const int group = kGroup > 0 ? kGroup : static_cast<int>(blockDim.x);
  const int lane = static_cast<int>(threadIdx.x) % group, member = static_cast<int>(threadIdx.x) / group;
  const int packs = static_cast<int>(a.n / V), plane = kRows * packs;
  const bool adds = a.residual != nullptr;
  const int size = (adds ? 2 : 1) * plane, rows = static_cast<int>(a.rows);
  const auto inside = [&](int j) { return kFull || lane + j * group < packs; };
  uint4* const own = dynamic + member * packs + lane;
  // `start` is the first element of this thread in the row.
  const auto fetch_row = [&](int row, int64_t start, int stage) {
    if (row < rows) {
      uint4* const to = own + stage * size;
#pragma unroll
      for (int j = 0; j < K; ++j)
        if (inside(j)) copy_async<16>(to + j * group, a.x + start + j * group * V);
      if (adds) {
#pragma unroll
        for (int j = 0; j < K; ++j)
          if (inside(j)) copy_async<16>(to + plane + j * group, a.residual + start + j * group * V);
      }
    }
    end_copies();
  };
  const int step = static_cast<int>(gridDim.x) * kRows;
  const int64_t stride = step * a.n;
  int row = static_cast<int>(blockIdx.x) * kRows + member;
  int64_t start = row * a.n + lane * V;
#pragma unroll
  for (int s = 0; s < kStages; ++s) fetch_row(row + s * step, start + s * stride, s);
  // Weights stay in registers where there is room.
  constexpr bool kKeep = K <= 4;
  Pack<T, V> w[K];
#pragma unroll
  for (int j = 0; kKeep && j < K; ++j)
    if (inside(j)) w[j] = fetch<V>(a.w + (lane + j * group) * V);
  const S over_n = S(1) / S(a.n), eps = S(a.eps);
  sums.begin();
  int stage = 0, turn = 0;
  // All groups of a block go round equally often, since the sums need whole warps; one without a row takes
  // part with nothing.
  for (int base = static_cast<int>(blockIdx.x) * kRows; base < rows;
       base += step, row += step, start += stride) {
    const bool active = kRows == 1 || row < rows;
    Pack<T, V> x[K];
    await_copies<kStages - 1>();
    const uint4* const from = own + stage * size;
#pragma unroll
    for (int j = 0; j < K; ++j)
      if (active && inside(j)) x[j].raw = from[j * group];
    if (adds) {
#pragma unroll
      for (int j = 0; j < K; ++j) {
        if (!active || !inside(j)) continue;
        auto v = values<T, V>(x[j]);
        const auto more = values<T, V>(Pack<T, V>{from[plane + j * group]});
#pragma unroll
        for (int k = 0; k < V; ++k) v.v[k] += more.v[k];
        x[j] = packed<T, V>(v);
        put<V>(a.sum + start + j * group * V, x[j]);
      }
    }
    fetch_row(row + kStages * step, start + kStages * stride, stage);
    stage = stage + 1 == kStages ? 0 : stage + 1;
    S total[1] = {0}, mean = 0;
    if constexpr (kCentred) {
#pragma unroll
      for (int j = 0; j < K; ++j) {
        if (!active || !inside(j)) continue;
        const auto v = values<T, V>(x[j]);
#pragma unroll
        for (int k = 0; k < V; ++k) total[0] += v.v[k];
      }
      sums.sum(total, turn);
      turn ^= 1;
      mean = total[0] * over_n;
      total[0] = 0;
    }
#pragma unroll
    for (int j = 0; j < K; ++j) {
      if (!active || !inside(j)) continue;
      const auto v = values<T, V>(x[j]);
#pragma unroll
      for (int k = 0; k < V; ++k) {
        const S d = kCentred ? v.v[k] - mean : v.v[k];
        total[0] += d * d;
      }
    }
    sums.sum(total, turn);
    turn ^= 1;
    const S rstd = S(1) / sqrt(total[0] * over_n + eps);
    if (!active) continue;
    if (lane == 0) {
      a.rstd[row] = rstd;
      if constexpr (kCentred) a.mean[row] = mean;
    }
#pragma unroll
    for (int j = 0; j < K; ++j) {
      const int p = lane + j * group;
      if (!inside(j)) continue;
      auto v = values<T, V>(x[j]);
      const auto m = values<T, V>(kKeep ? w[j] : fetch<V>(a.w + p * V));
      Vals<S, V> b = {};
      if (kCentred && a.b != nullptr) b = load<V>(a.b + p * V);
#pragma unroll
      for (int k = 0; k < V; ++k)
        v.v[k] = weighted<kCentred>(normed<kCentred>(v.v[k], mean, rstd), m.v[k], b.v[k]);
      store<V>(a.y + start + j * group * V, v);
    }
  }
}

template <class T, bool kCentred>
__global__ void __launch_bounds__(kNormAnyThreads) forward_any_kernel(Forward<T> a) {
  await_previous();
  using S = Stat<T>;
  __shared__ S shared[32];
  const int64_t row = blockIdx.x, start = row * a.n;
  if (a.residual != nullptr) {
    for (int64_t i = threadIdx.x; i < a.n; i += blockDim.x) {
      auto v = load<1>(a.x + start + i);
      v.v[0] += load<1>(a.residual + start + i).v[0];
      store<1>(a.sum + start + i, v);
    }
    a.x = a.sum;  // each thread reads what it wrote
  }
  S total[1] = {0}, mean = 0;
  if constexpr (kCentred) {
    for (int64_t i = threadIdx.x; i < a.n; i += blockDim.x) total[0] += load<1>(a.x + start + i).v[0];
    group_sum<0>(total, shared);
    mean = total[0] / S(a.n);
    total[0] = 0;
  }
  for (int64_t i = threadIdx.x; i < a.n; i += blockDim.x) {
    const S v = load<1>(a.x + start + i).v[0] - mean;
    total[0] += v * v;
  }
  group_sum<0>(total, shared);
  const S rstd = S(1) / sqrt(total[0] / S(a.n) + S(a.eps));
  if (threadIdx.x == 0) {
    a.rstd[row] = rstd;
    if constexpr (kCentred) a.mean[row] = mean;
  }
  for (int64_t i = threadIdx.x; i < a.n; i += blockDim.x) {
    auto v = load<1>(a.x + start + i);
    const S b = kCentred && a.b != nullptr ? load<1>(a.b + i).v[0] : S(0);
    v.v[0] = weighted<kCentred>(normed<kCentred>(v.v[0], mean, rstd), load<1>(a.w + i).v[0], b);
    store<1>(a.y + start + i, v);
  }
}

template <class T, bool kCentred>
void forward(const Forward<T>& a, Stream stream) {
  if (a.rows <= 0 || a.n <= 0) return;
  const bool wide = !std::is_same_v<T, double> && a.rows <= kNormMostRows && a.n % kWide<T> == 0 &&
                    all_aligned16(a.x, a.residual, a.w, a.b, a.sum, a.y);
  bool done = false;
  if constexpr (!std::is_same_v<T, double>) {
    const int64_t packs = a.n / kWide<T>;
    done = wide && with_norm_shape(Shapes{}, packs, [&](auto shape, auto full) {
             using Shape = decltype(shape);
             const auto kernel = forward_kernel<T, Shape, decltype(full)::value, kCentred>;
             const int threads = Shape::threads(packs);
             const int64_t bytes = Shape::bytes(packs, a.residual != nullptr ? 2 : 1);
             const int64_t most = resident_blocks(kernel, threads, bytes, Shape::bytes(Shape::kMostPacks, 2)),
                           blocks = divide_up(a.rows, Shape::kRows);
             if (most == 0) return false;
             kernel<<<static_cast<unsigned>(blocks < most ? blocks : most), threads,
                      static_cast<size_t>(bytes), stream>>>(a);
             return true;
           });
  }
  if (!done)
    forward_any_kernel<T, kCentred><<<static_cast<unsigned>(a.rows), kNormAnyThreads, 0, stream>>>(a);
  check_launch("norm");
}

}  // namespace

template <class T>
void rmsnorm(const T* x, const T* w, T* y, Stat<T>* rstd, int64_t rows, int64_t n, double eps,
             Stream stream) {
  forward<T, false>({x, nullptr, w, nullptr, nullptr, y, nullptr, rstd, rows, n, eps}, stream);
}
template <class T>
void add_rmsnorm(const T* x, const T* residual, const T* w, T* sum, T* y, Stat<T>* rstd, int64_t rows,
                 int64_t n, double eps, Stream stream) {
  forward<T, false>({x, residual, w, nullptr, sum, y, nullptr, rstd, rows, n, eps}, stream);
}
template <class T>
void layernorm(const T* x, const T* w, const T* b, T* y, Stat<T>* mean, Stat<T>* rstd, int64_t rows,
               int64_t n, double eps, Stream stream) {
  forward<T, true>({x, nullptr, w, b, nullptr, y, mean, rstd, rows, n, eps}, stream);
}
template <class T>
void add_layernorm(const T* x, const T* residual, const T* w, const T* b, T* sum, T* y, Stat<T>* mean,
                   Stat<T>* rstd, int64_t rows, int64_t n, double eps, Stream stream) {
  forward<T, true>({x, residual, w, b, sum, y, mean, rstd, rows, n, eps}, stream);
}

#define INSTANTIATE(T)                              \
  template decltype(rmsnorm<T>) rmsnorm<T>;         \
  template decltype(add_rmsnorm<T>) add_rmsnorm<T>; \
  template decltype(layernorm<T>) layernorm<T>;     \
  template decltype(add_layernorm<T>) add_layernorm<T>;
INSTANTIATE(double)
INSTANTIATE(float)
INSTANTIATE(Bf16)
INSTANTIATE(F16)
#undef INSTANTIATE

}  // namespace quintet::kernels::cuda

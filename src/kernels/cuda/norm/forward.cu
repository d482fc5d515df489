#include "kernels/cuda/fp8/convert.cuh"
#include "kernels/cuda/fp8/quantize.h"
#include "kernels/cuda/norm/norm.h"
#include "kernels/cuda/norm/shape.cuh"
#include "kernels/cuda/support/launch.cuh"
#include "kernels/cuda/support/thread_group.cuh"

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
  double offset = 0;   // added to w
  CodeTarget to = {};  // instead of y
};

// A row is little work, so a block handles one and ends: many loads in flight before the first sum, and small
// blocks, so that other rows hide the latency of a row's sum. (Persistent blocks, as in the backward pass,
// are slower here.) A row is shared by a group of kGroup lanes, or by the whole block, of at most kThreads,
// when kGroup is 0; each thread has kPacks 16-byte vectors in registers.
template <int kGroupOf, int kPacksOf, int kThreadsOf>
struct RowShape {
  static constexpr int kGroup = kGroupOf, kPacks = kPacksOf, kThreads = kThreadsOf;
  static constexpr int kRows = kGroup > 0 ? kThreads / kGroup : 1;  // per block
  static int threads(int64_t packs) {
    if (kGroup > 0) return kThreads;
    return static_cast<int>((packs + 32 * kPacks - 1) / (32 * kPacks) * 32);
  }
  static bool fits(int64_t packs) { return packs <= (kGroup > 0 ? kGroup : kThreads) * int64_t{kPacks}; }
};
// Calls f(shape) with the first shape that a row fits, smallest first; false when there is none.
template <class F>
bool with_row_shape(int64_t packs, F&& f) {
  const auto first = [&]<class... Shapes>(Shapes... shapes) {
    return ((Shapes::fits(packs) && (f(shapes), true)) || ...);
  };
  return first(RowShape<8, 2, 128>{}, RowShape<8, 4, 256>{}, RowShape<32, 4, 256>{}, RowShape<0, 4, 256>{},
               RowShape<0, 4, 512>{});
}

template <class T, class Shape, bool kCentred, bool kCodes = false>
__global__ void __launch_bounds__(Shape::kThreads) forward_kernel(Forward<T> a) {
  await_previous();
  using S = Stat<T>;
  constexpr int V = kWide<T>, K = Shape::kPacks, kGroup = Shape::kGroup;
  __shared__ S shared[32];
  const int group = kGroup > 0 ? kGroup : static_cast<int>(blockDim.x);
  const int lane = static_cast<int>(threadIdx.x) % group;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * Shape::kRows + threadIdx.x / group;
  // A group without a row contributes nothing to the sums of its warp.
  const int packs = row < a.rows ? static_cast<int>(a.n / V) : 0;
  const int64_t start = row * a.n;
  Pack<T, V> x[K];
  S total[1] = {0};
#pragma unroll
  for (int j = 0; j < K; ++j) {
    const int p = lane + j * group;
    if (p < packs) x[j] = fetch<V>(a.x + start + p * V);
  }
  if (a.residual != nullptr) {
    Pack<T, V> other[K];
#pragma unroll
    for (int j = 0; j < K; ++j) {
      const int p = lane + j * group;
      if (p < packs) other[j] = fetch<V>(a.residual + start + p * V);
    }
#pragma unroll
    for (int j = 0; j < K; ++j) {
      const int p = lane + j * group;
      if (p >= packs) continue;
      auto v = values<T, V>(x[j]);
      const auto o = values<T, V>(other[j]);
#pragma unroll
      for (int k = 0; k < V; ++k) v.v[k] += o.v[k];
      x[j] = packed<T, V>(v);
      put<V>(a.sum + start + p * V, x[j]);
    }
  }
  S mean = 0;
  if constexpr (kCentred) {
#pragma unroll
    for (int j = 0; j < K; ++j) {
      if (lane + j * group >= packs) continue;
      const auto v = values<T, V>(x[j]);
#pragma unroll
      for (int k = 0; k < V; ++k) total[0] += v.v[k];
    }
    group_sum<kGroup>(total, shared);
    mean = total[0] / S(a.n);
    total[0] = 0;
  }
#pragma unroll
  for (int j = 0; j < K; ++j) {
    if (lane + j * group >= packs) continue;
    const auto v = values<T, V>(x[j]);
#pragma unroll
    for (int k = 0; k < V; ++k) total[0] += (v.v[k] - mean) * (v.v[k] - mean);
  }
  group_sum<kGroup>(total, shared);
  const S rstd = S(1) / sqrt(total[0] / S(a.n) + S(a.eps));
  if (!kCodes && row >= a.rows) return;
  if (lane == 0 && row < a.rows) {
    a.rstd[row] = rstd;
    if constexpr (kCentred) a.mean[row] = mean;
  }
  [[maybe_unused]] const float scale = kCodes ? *a.to.scale : 0.0f;
  [[maybe_unused]] Seen<base::DType::E4M3> seen;
#pragma unroll
  for (int j = 0; j < K; ++j) {
    const int p = lane + j * group;
    if (p >= packs) continue;
    auto v = values<T, V>(x[j]);
    auto w = load<V>(a.w + p * V);
    Vals<S, V> b{};
    if (kCentred && a.b != nullptr) b = load<V>(a.b + p * V);
#pragma unroll
    for (int k = 0; k < V; ++k) {
      if constexpr (!kCentred) w.v[k] += S(a.offset);
      v.v[k] = weighted<kCentred>(normed<kCentred>(v.v[k], mean, rstd), w.v[k], b.v[k]);
    }
    if constexpr (kCodes) {
      const Eight<Bf16> result = rounded(v);
      const uint2 codes = codes_of<base::DType::E4M3>(result, scale);
      seen.add(result, codes, scale);
      *reinterpret_cast<uint2*>(a.to.rows + row * a.to.row_stride + p * V) = codes;
    } else {
      store<V>(a.y + start + p * V, v);
    }
  }
  if constexpr (kCodes)
    if (a.to.measures.amax != nullptr) add_measures(seen, a.to.measures, a.rows * a.n);
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
    v.v[0] = weighted<kCentred>(normed<kCentred>(v.v[0], mean, rstd), load<1>(a.w + i).v[0] + S(a.offset), b);
    store<1>(a.y + start + i, v);
  }
}

template <class T, bool kCentred>
void forward(const Forward<T>& a, Stream stream) {
  if (a.rows <= 0 || a.n <= 0) return;
  const bool wide = !std::is_same_v<T, double> && a.n % kWide<T> == 0 &&
                    all_aligned16(a.x, a.residual, a.w, a.b, a.sum, a.y);
  bool done = false;
  if constexpr (!std::is_same_v<T, double>) {
    const int64_t packs = a.n / kWide<T>;
    done =
        wide && with_row_shape(packs, [&](auto shape) {
          using Shape = decltype(shape);
          forward_kernel<T, Shape, kCentred>
              <<<static_cast<unsigned>(divide_up(a.rows, Shape::kRows)), Shape::threads(packs), 0, stream>>>(
                  a);
        });
  }
  if (!done)
    forward_any_kernel<T, kCentred><<<static_cast<unsigned>(a.rows), kNormAnyThreads, 0, stream>>>(a);
  check_launch("norm");
}

}  // namespace

template <class T>
void rmsnorm(const T* x, const T* w, T* y, Stat<T>* rstd, int64_t rows, int64_t n, double eps, Stream stream,
             double offset) {
  forward<T, false>({x, nullptr, w, nullptr, nullptr, y, nullptr, rstd, rows, n, eps, offset}, stream);
}
template <class T>
void add_rmsnorm(const T* x, const T* residual, const T* w, T* sum, T* y, Stat<T>* rstd, int64_t rows,
                 int64_t n, double eps, Stream stream, double offset) {
  forward<T, false>({x, residual, w, nullptr, sum, y, nullptr, rstd, rows, n, eps, offset}, stream);
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

void rmsnorm_codes(const Bf16* x, const Bf16* residual, const Bf16* w, Bf16* sum, float* rstd, int64_t rows,
                   int64_t n, double eps, double offset, const CodeTarget& to, Stream stream) {
  if (rows <= 0 || n <= 0) return;
  const int64_t packs = n / kWide<Bf16>;
  const Forward<Bf16> a{x, residual, w, nullptr, sum, nullptr, nullptr, rstd, rows, n, eps, offset, to};
  const bool done =
      n % 16 == 0 && to.row_stride % 16 == 0 && all_aligned16(x, residual, w, sum, to.rows) &&
      to.format == base::DType::E4M3 && to.columns == nullptr && with_row_shape(packs, [&](auto shape) {
        using Shape = decltype(shape);
        forward_kernel<Bf16, Shape, false, true>
            <<<static_cast<unsigned>(divide_up(rows, Shape::kRows)), Shape::threads(packs), 0, stream>>>(a);
      });
  if (!done) fail("norm codes: rows of " + std::to_string(n) + " elements are not supported");
  check_launch("norm codes");
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

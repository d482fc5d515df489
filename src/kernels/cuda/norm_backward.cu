#include "kernels/cuda/column_reduce.cuh"
#include "kernels/cuda/group.cuh"
#include "kernels/cuda/norm.h"
#include "kernels/cuda/norm_shape.cuh"

namespace quintet::kernels::cuda {
namespace {

template <class T>
struct Backward {
  const T *dy, *x, *w, *b;  // b null: none; for y only
  const Stat<T>*mean, *rstd;
  const T* addend;   // null: none
  T *dx, *y;         // y null: not wanted
  Stat<T>* partial;  // [dw, db][blocks, n]
  int64_t rows, n;
};

// As many blocks as run at once, so that all have the same share of the rows.
template <class K>
int64_t resident_blocks(K kernel, int threads, size_t bytes) {
  int device = 0, processors = 0, each = 0;
  check(cudaGetDevice(&device), "norm_backward");
  check(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device), "norm_backward");
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, threads, bytes), "norm_backward");
  const int64_t blocks = int64_t{processors} * each;
  return blocks < kNormPartials ? blocks : kNormPartials;
}

// With dw few blocks hold many sums and a row ahead; without, many small blocks take a row each.
template <bool kDw>
using Shapes = std::conditional_t<
    kDw, NormShapes<NormShape<8, 2, 256>, NormShape<32, 2, 256>, NormShape<0, 2, 256>, NormShape<0, 4, 512>>,
    NormShapes<NormShape<8, 2, 256>, NormShape<0, 1, 256>, NormShape<0, 2, 512>, NormShape<0, 4, 512>>>;

// Rows go to groups in turn; with kDw a thread keeps the sums of its columns in registers, and the next row
// is under way while this one is summed.
template <class T, class Shape, bool kCentred, bool kDw>
__global__ void __launch_bounds__(Shape::kThreads) backward_kernel(Backward<T> a) {
  await_previous();
  using S = Stat<T>;
  constexpr int V = kWide<T>, K = Shape::kPacks, kGroup = Shape::kGroup, kRows = Shape::kRows;
  __shared__ S shared[64];
  extern __shared__ unsigned char dynamic[];
  const int group = kGroup > 0 ? kGroup : static_cast<int>(blockDim.x);
  const int lane = static_cast<int>(threadIdx.x) % group, member = static_cast<int>(threadIdx.x) / group;
  const int packs = static_cast<int>(a.n / V);
  const int64_t step = static_cast<int64_t>(gridDim.x) * kRows;
  const S over_n = S(1) / S(a.n);
  struct Row {
    Pack<T, V> dy[K], x[K], addend[K];
    S rstd, mean;
  };
  const auto fetch_row = [&](int64_t row, Row& to) {
    if (row >= a.rows) return;
    const int64_t start = row * a.n;
#pragma unroll
    for (int j = 0; j < K; ++j) {
      const int p = lane + j * group;
      if (p >= packs) continue;
      to.dy[j] = fetch<V>(a.dy + start + p * V);
      to.x[j] = fetch<V>(a.x + start + p * V);
      if (a.addend != nullptr) to.addend[j] = fetch<V>(a.addend + start + p * V);
    }
    to.rstd = a.rstd[row];
    to.mean = kCentred ? a.mean[row] : S(0);
  };
  Pack<T, V> w[K];
  S dw[kDw ? K * V : 1] = {}, db[kDw && kCentred ? K * V : 1] = {};
#pragma unroll
  for (int j = 0; j < K; ++j) {
    const int p = lane + j * group;
    if (p < packs) w[j] = fetch<V>(a.w + p * V);
  }
  Row now;
  int64_t row = static_cast<int64_t>(blockIdx.x) * kRows + member;
  fetch_row(row, now);
  // All groups of a block go round equally often, since the sums need whole warps; those without a row are
  // idle.
  for (int64_t base = static_cast<int64_t>(blockIdx.x) * kRows; base < a.rows; base += step, row += step) {
    const bool active = row < a.rows;
    Row next;
    if constexpr (kDw) fetch_row(row + step, next);
    const S rstd = now.rstd, mean = now.mean;
    S total[kCentred ? 2 : 1] = {};
#pragma unroll
    for (int j = 0; j < K; ++j) {
      if (!active || lane + j * group >= packs) continue;
      const auto d = values<T, V>(now.dy[j]), v = values<T, V>(now.x[j]), m = values<T, V>(w[j]);
#pragma unroll
      for (int k = 0; k < V; ++k) {
        const S g = d.v[k] * m.v[k], h = (v.v[k] - mean) * rstd;
        total[0] += g * h;
        if constexpr (kCentred) total[1] += g;
        if constexpr (kDw) dw[j * V + k] += d.v[k] * h;
        if constexpr (kDw && kCentred) db[j * V + k] += d.v[k];
      }
    }
    group_sum<kGroup>(total, shared);
    const S along = total[0] * over_n, level = kCentred ? total[kCentred ? 1 : 0] * over_n : S(0);
    const int64_t start = row * a.n;
#pragma unroll
    for (int j = 0; j < K; ++j) {
      const int p = lane + j * group;
      if (!active || p >= packs) continue;
      auto d = values<T, V>(now.dy[j]);
      auto v = values<T, V>(now.x[j]);
      const auto m = values<T, V>(w[j]);
#pragma unroll
      for (int k = 0; k < V; ++k) {
        const S h = (v.v[k] - mean) * rstd;
        d.v[k] = rstd * (d.v[k] * m.v[k] - level - h * along);
        v.v[k] = h * m.v[k];
      }
      if (a.addend != nullptr) {
        const auto more = values<T, V>(now.addend[j]);
#pragma unroll
        for (int k = 0; k < V; ++k) d.v[k] += more.v[k];
      }
      store<V>(a.dx + start + p * V, d);
      if (a.y != nullptr) {
        if (kCentred && a.b != nullptr) {
          const auto b = load<V>(a.b + p * V);
#pragma unroll
          for (int k = 0; k < V; ++k) v.v[k] += b.v[k];
        }
        store<V>(a.y + start + p * V, v);
      }
    }
    if constexpr (kDw) now = next;
  }
  if constexpr (kDw) {
    S* sums = reinterpret_cast<S*>(dynamic);  // [kRows, n] when a block has several rows
#pragma unroll
    for (int out = 0; out < (kCentred ? 2 : 1); ++out) {
      S* const partial = a.partial + (static_cast<int64_t>(out) * gridDim.x + blockIdx.x) * a.n;
      if constexpr (kRows > 1) __syncthreads();
      S* const to = kRows > 1 ? sums + member * a.n : partial;
#pragma unroll
      for (int j = 0; j < K; ++j) {
        const int p = lane + j * group;
        if (p >= packs) continue;
#pragma unroll
        for (int k = 0; k < V; ++k) {
          if constexpr (kCentred)
            to[p * V + k] = out == 0 ? dw[j * V + k] : db[j * V + k];
          else
            to[p * V + k] = dw[j * V + k];
        }
      }
      if constexpr (kRows > 1) {
        __syncthreads();
        for (int i = static_cast<int>(threadIdx.x); i < a.n; i += static_cast<int>(blockDim.x)) {
          S sum = sums[i];
          for (int q = 1; q < kRows; ++q) sum += sums[q * a.n + i];
          partial[i] = sum;
        }
      }
    }
  }
}

template <class T, bool kCentred>
__global__ void __launch_bounds__(kNormAnyThreads) dx_any_kernel(Backward<T> a) {
  await_previous();
  using S = Stat<T>;
  __shared__ S shared[64];
  const int64_t row = blockIdx.x, start = row * a.n;
  const S rstd = a.rstd[row], mean = kCentred ? a.mean[row] : S(0);
  S total[2] = {};
  for (int64_t i = threadIdx.x; i < a.n; i += blockDim.x) {
    const S g = load<1>(a.dy + start + i).v[0] * load<1>(a.w + i).v[0];
    total[0] += g * ((load<1>(a.x + start + i).v[0] - mean) * rstd);
    if constexpr (kCentred) total[1] += g;
  }
  group_sum<0>(total, shared);
  const S along = total[0] / S(a.n), level = total[1] / S(a.n);
  for (int64_t i = threadIdx.x; i < a.n; i += blockDim.x) {
    const S w = load<1>(a.w + i).v[0], h = (load<1>(a.x + start + i).v[0] - mean) * rstd;
    auto d = load<1>(a.dy + start + i);
    d.v[0] = rstd * (d.v[0] * w - level - h * along);
    if (a.addend != nullptr) d.v[0] += load<1>(a.addend + start + i).v[0];
    store<1>(a.dx + start + i, d);
    if (a.y != nullptr) {
      const S b = kCentred && a.b != nullptr ? load<1>(a.b + i).v[0] : S(0);
      store<1>(a.y + start + i, Vals<S, 1>{{h * w + b}});
    }
  }
}

// dy * h, and dy itself when centred.
template <class T, bool kCentred>
struct Terms {
  static constexpr int kOut = kCentred ? 2 : 1;
  const T *dy, *x;
  const Stat<T>*mean, *rstd;
  int64_t n;
  template <int V>
  __device__ void at(int64_t r, int64_t i, Vals<Stat<T>, V> (&out)[kOut]) const {
    using S = Stat<T>;
    const auto d = load<V>(dy + r * n + i), v = load<V>(x + r * n + i);
    const S s = rstd[r], m = kCentred ? mean[r] : S(0);
#pragma unroll
    for (int k = 0; k < V; ++k) {
      out[0].v[k] = d.v[k] * ((v.v[k] - m) * s);
      if constexpr (kCentred) out[1].v[k] = d.v[k];
    }
  }
};

template <bool kCentred, class T, class D>
void weight_gradient(const Backward<T>& a, D* dw, D* db, bool accumulate, Stream stream) {
  if (a.n <= 0) return;
  const bool wide = a.n % kWide<T> == 0 && all_aligned16(a.dy, a.x);
  column_partial<kWide<T>>(Terms<T, kCentred>{a.dy, a.x, a.mean, a.rstd, a.n}, a.rows, a.n, wide, a.partial,
                           stream);
  const int64_t chunks = column_chunks(a.rows, a.n);
  column_total(a.partial, chunks, a.n, dw, accumulate, stream);
  if (kCentred && db != nullptr) column_total(a.partial + chunks * a.n, chunks, a.n, db, accumulate, stream);
}

template <bool kCentred, bool kDw, class T, class D>
void backward(const Backward<T>& a, D* dw, D* db, bool accumulate, Stream stream) {
  if constexpr (!std::is_same_v<T, double>) {
    const bool wide =
        a.rows > 0 && a.n % kWide<T> == 0 && all_aligned16(a.dy, a.x, a.w, a.b, a.addend, a.dx, a.y);
    const int64_t packs = a.n / kWide<T>;
    int64_t blocks = 0;
    const bool done = wide && with_norm_shape(Shapes<kDw>{}, packs, [&](auto shape) {
                        using Shape = decltype(shape);
                        const auto kernel = backward_kernel<T, Shape, kCentred, kDw>;
                        const int threads = Shape::threads(packs);
                        const size_t bytes = kDw && Shape::kRows > 1
                                                 ? Shape::kRows * static_cast<size_t>(a.n) * sizeof(Stat<T>)
                                                 : 0;
                        blocks = divide_up(a.rows, Shape::kRows);
                        if constexpr (kDw) {
                          const int64_t most = resident_blocks(kernel, threads, bytes);
                          blocks = blocks < most ? blocks : most;
                        }
                        kernel<<<static_cast<unsigned>(blocks), threads, bytes, stream>>>(a);
                        check_launch("norm_backward");
                      });
    if (done) {
      if constexpr (kDw) {
        column_total(a.partial, blocks, a.n, dw, accumulate, stream);
        if (kCentred && db != nullptr)
          column_total(a.partial + blocks * a.n, blocks, a.n, db, accumulate, stream);
      }
      return;
    }
  }
  if constexpr (kDw) weight_gradient<kCentred>(a, dw, db, accumulate, stream);  // first: dx may be dy
  if (a.rows <= 0 || a.n <= 0) return;
  dx_any_kernel<T, kCentred><<<static_cast<unsigned>(a.rows), kNormAnyThreads, 0, stream>>>(a);
  check_launch("norm_dx");
}

}  // namespace

template <class T>
void rmsnorm_dx(const T* dy, const T* x, const T* w, const Stat<T>* rstd, const T* addend, T* dx,
                int64_t rows, int64_t n, Stream stream) {
  backward<false, false>(Backward<T>{dy, x, w, nullptr, nullptr, rstd, addend, dx, nullptr, nullptr, rows, n},
                         static_cast<Grad<T>*>(nullptr), static_cast<Grad<T>*>(nullptr), false, stream);
}
template <class T, class D>
void rmsnorm_dw(const T* dy, const T* x, const Stat<T>* rstd, D* dw, bool accumulate, int64_t rows, int64_t n,
                void* workspace, Stream stream) {
  weight_gradient<false>(Backward<T>{dy, x, nullptr, nullptr, nullptr, rstd, nullptr, nullptr, nullptr,
                                     static_cast<Stat<T>*>(workspace), rows, n},
                         dw, static_cast<D*>(nullptr), accumulate, stream);
}
template <class T, class D>
void rmsnorm_backward(const T* dy, const T* x, const T* w, const Stat<T>* rstd, const T* addend, T* dx, T* y,
                      D* dw, bool accumulate, int64_t rows, int64_t n, void* workspace, Stream stream) {
  backward<false, true>(
      Backward<T>{dy, x, w, nullptr, nullptr, rstd, addend, dx, y, static_cast<Stat<T>*>(workspace), rows, n},
      dw, static_cast<D*>(nullptr), accumulate, stream);
}

template <class T>
void layernorm_dx(const T* dy, const T* x, const T* w, const Stat<T>* mean, const Stat<T>* rstd,
                  const T* addend, T* dx, int64_t rows, int64_t n, Stream stream) {
  backward<true, false>(Backward<T>{dy, x, w, nullptr, mean, rstd, addend, dx, nullptr, nullptr, rows, n},
                        static_cast<Grad<T>*>(nullptr), static_cast<Grad<T>*>(nullptr), false, stream);
}
template <class T, class D>
void layernorm_dw(const T* dy, const T* x, const Stat<T>* mean, const Stat<T>* rstd, D* dw,
                  std::type_identity_t<D>* db, bool accumulate, int64_t rows, int64_t n, void* workspace,
                  Stream stream) {
  weight_gradient<true>(Backward<T>{dy, x, nullptr, nullptr, mean, rstd, nullptr, nullptr, nullptr,
                                    static_cast<Stat<T>*>(workspace), rows, n},
                        dw, db, accumulate, stream);
}
template <class T, class D>
void layernorm_backward(const T* dy, const T* x, const T* w, const T* b, const Stat<T>* mean,
                        const Stat<T>* rstd, const T* addend, T* dx, T* y, D* dw, std::type_identity_t<D>* db,
                        bool accumulate, int64_t rows, int64_t n, void* workspace, Stream stream) {
  backward<true, true>(
      Backward<T>{dy, x, w, b, mean, rstd, addend, dx, y, static_cast<Stat<T>*>(workspace), rows, n}, dw, db,
      accumulate, stream);
}

#define INSTANTIATE(T)                            \
  template decltype(rmsnorm_dx<T>) rmsnorm_dx<T>; \
  template decltype(layernorm_dx<T>) layernorm_dx<T>;
INSTANTIATE(double)
INSTANTIATE(float)
INSTANTIATE(Bf16)
INSTANTIATE(F16)
#undef INSTANTIATE
#define INSTANTIATE(T, D)                                           \
  template decltype(rmsnorm_dw<T, D>) rmsnorm_dw<T, D>;             \
  template decltype(rmsnorm_backward<T, D>) rmsnorm_backward<T, D>; \
  template decltype(layernorm_dw<T, D>) layernorm_dw<T, D>;         \
  template decltype(layernorm_backward<T, D>) layernorm_backward<T, D>;
INSTANTIATE(double, double)
INSTANTIATE(float, float)
INSTANTIATE(Bf16, float)
INSTANTIATE(F16, float)
INSTANTIATE(Bf16, Bf16)
#undef INSTANTIATE

}  // namespace quintet::kernels::cuda

#include <tuple>
#include <utility>

#include "kernels/cuda/norm/norm.h"
#include "kernels/cuda/norm/shape.cuh"
#include "kernels/cuda/reduce/column_reduce.cuh"
#include "kernels/cuda/support/thread_group.cuh"

namespace quintet::kernels::cuda {
namespace {

template <class T>
struct Backward {
  const T *dy, *x, *w, *b;  // b null: none; for y only
  const Stat<T>*mean, *rstd;
  const T* addend;   // null: none
  T *dx, *y;         // y null: not needed
  Stat<T>* partial;  // [dw, db][blocks, n]
  int64_t rows, n;
  Stat<T> offset = 0;  // added to w
};

// Which rows a block has. The first `even_blocks` share the first `even_rows` in round-robin order; the
// others have `late_rows` each of the rest.
struct Shares {
  int even_blocks, even_rows, late_rows;
};

// Columns are split over enough threads that a thread's weights and sums fit into registers, and few enough
// that each thread's work per row outweighs its fixed cost.
using Shapes = NormShapes<NormShape<8, 2>, NormShape<32, 2>, NormShape<96, 1>, NormShape<64, 2>,
                          NormShape<64, 3>, NormShape<128, 2>, NormShape<128, 3>, NormShape<256, 2>,
                          NormShape<256, 3>, NormShape<512, 2>, NormShape<512, 3>, NormShape<512, 4>>;

// A block's rows go to its groups in round-robin order, and a thread keeps the sums of its columns.
template <class T, class Shape, bool kCentred, bool kDx, bool kDw>
__global__ void __launch_bounds__(Shape::kThreads, 1) backward_kernel(Backward<T> a, Shares shares) {
  await_previous();
  using S = Stat<T>;
  constexpr int V = kWide<T>, K = Shape::kPacks, kGroup = Shape::kGroup, kRows = Shape::kRows,
                kStages = Shape::template kStages<kDx>;
  // A row's products stay in registers too if they fit; otherwise they are recomputed.
  constexpr bool kHold = K <= (kCentred ? 2 : 3);
  constexpr int kLanes = kGroup < 32 ? kGroup : 32;          // lanes that share a copy of a row's statistics
  extern __shared__ uint4 dynamic[];                         // [stage][dy, x, addend][row][vector]
  __shared__ S stats[kStages][2][Shape::kThreads / kLanes];  // rstd, mean
  __shared__ RowSums<Shape, kCentred ? 2 : 1, S> sums;
  const int lane = static_cast<int>(threadIdx.x) % kGroup, member = static_cast<int>(threadIdx.x) / kGroup;
  const int slot = static_cast<int>(threadIdx.x) / kLanes;
  const int packs = static_cast<int>(a.n / V), plane = kRows * packs;
  const bool adds = kDx && a.addend != nullptr;
  const int size = (adds ? 3 : 2) * plane, block = static_cast<int>(blockIdx.x);
  const bool even = block < shares.even_blocks;
  const int first = even ? block * kRows : shares.even_rows + (block - shares.even_blocks) * shares.late_rows,
            last = even ? shares.even_rows : min(first + shares.late_rows, static_cast<int>(a.rows)),
            step = even ? shares.even_blocks * kRows : kRows;
  const auto inside = [&](int j) { return lane + j * kGroup < packs; };
  uint4* const own = dynamic + member * packs + lane;
  // `start` is this thread's first element of the row.
  const auto fetch_row = [&](int row, int64_t start, int stage) {
    if (row < last) {
      uint4* const to = own + stage * size;
#pragma unroll
      for (int j = 0; j < K; ++j) {
        if (!inside(j)) continue;
        copy_async<16>(to + j * kGroup, a.dy + start + j * kGroup * V);
        copy_async<16>(to + plane + j * kGroup, a.x + start + j * kGroup * V);
      }
      if (adds) {
#pragma unroll
        for (int j = 0; j < K; ++j)
          if (inside(j)) copy_async<16>(to + 2 * plane + j * kGroup, a.addend + start + j * kGroup * V);
      }
      if (threadIdx.x % kLanes == 0) {
        copy_async<4>(&stats[stage][0][slot], a.rstd + row);
        if constexpr (kCentred) copy_async<4>(&stats[stage][1][slot], a.mean + row);
      }
    }
    end_copies();
  };
  const int64_t stride = step * a.n;
  int row = first + member;
  int64_t start = row * a.n + lane * V;
#pragma unroll
  for (int s = 0; s < kStages; ++s) fetch_row(row + s * step, start + s * stride, s);

  // Weights as numbers if they fit.
  Vals<S, V> wide_w[kHold ? K : 1] = {};
  Pack<T, V> narrow_w[kHold ? 1 : K] = {};
  const auto shifted = [&](Vals<S, V> w) {
    if constexpr (!kCentred) {
#pragma unroll
      for (int k = 0; k < V; ++k) w.v[k] += a.offset;
    }
    return w;
  };
  const auto weights = [&](int j) {
    if constexpr (kHold)
      return wide_w[j];
    else
      return shifted(values<T, V>(narrow_w[j]));
  };
  if constexpr (kDx) {
#pragma unroll
    for (int j = 0; j < K; ++j) {
      const int p = lane + j * kGroup;
      if (!inside(j)) continue;
      if constexpr (kHold)
        wide_w[j] = shifted(load<V>(a.w + p * V));
      else
        narrow_w[j] = fetch<V>(a.w + p * V);
    }
  }
  constexpr bool kHoldB = kCentred && kDx && K <= 3;
  Pack<T, V> narrow_b[kHoldB ? K : 1] = {};
  const bool biased = kCentred && kDx && a.y != nullptr && a.b != nullptr;
  if constexpr (kHoldB) {
#pragma unroll
    for (int j = 0; j < K; ++j)
      if (biased && inside(j)) narrow_b[j] = fetch<V>(a.b + (lane + j * kGroup) * V);
  }
  const auto bias = [&](int j) {
    if constexpr (kHoldB) return values<T, V>(narrow_b[j]);
    return biased ? load<V>(a.b + (lane + j * kGroup) * V) : Vals<S, V>{};
  };
  S dw[kDw ? K * V : 1] = {}, db[kDw && kCentred ? K * V : 1] = {};
  const S over_n = S(1) / S(a.n);
  int stage = 0, turn = 0;
  // All groups of a block iterate equally often, since the sums need whole warps; those without a row are
  // idle.
  for (int base = first; base < last; base += step, row += step, start += stride) {
    const bool active = kRows == 1 || row < last;
    await_copies<kStages - 1>();
    __syncwarp();  // another lane loaded the statistics
    const uint4* const from = own + stage * size;
    const S rstd = stats[stage][0][slot], mean = kCentred ? stats[stage][1][slot] : S(0);
    Vals<S, V> g[kHold && kDx ? K : 1], h[kHold && kDx ? K : 1];
    S total[kCentred ? 2 : 1] = {};
#pragma unroll
    for (int j = 0; j < K; ++j) {
      if (!active || !inside(j)) continue;
      const auto d = values<T, V>(Pack<T, V>{from[j * kGroup]}),
                 v = values<T, V>(Pack<T, V>{from[plane + j * kGroup]}), w = weights(j);
#pragma unroll
      for (int k = 0; k < V; ++k) {
        const S hk = normed<kCentred>(v.v[k], mean, rstd);
        if constexpr (kDx) {
          const S gk = d.v[k] * w.v[k];
          total[0] += gk * hk;
          if constexpr (kCentred) total[1] += gk;
          if constexpr (kHold) g[j].v[k] = gk, h[j].v[k] = hk;
        }
        if constexpr (kDw) dw[j * V + k] += d.v[k] * hk;
        if constexpr (kDw && kCentred) db[j * V + k] += d.v[k];
      }
      // Here and not next to dx: this spreads the writes more evenly.
      if constexpr (kDx) {
        if (a.y == nullptr) continue;
        const auto b = bias(j);
        Vals<S, V> out;
#pragma unroll
        for (int k = 0; k < V; ++k) {
          const S hk = kHold ? h[j].v[k] : normed<kCentred>(v.v[k], mean, rstd);
          out.v[k] = weighted<kCentred>(hk, w.v[k], b.v[k]);
        }
        store<V>(a.y + start + j * kGroup * V, out);
      }
    }
    if constexpr (kDx) {
      sums.sum(total, turn);
      turn ^= 1;
      // dx = rstd * (g - level - h * along)
      const S along = -rstd * (total[0] * over_n),
              level = kCentred ? -rstd * (total[kCentred ? 1 : 0] * over_n) : S(0);
#pragma unroll
      for (int j = 0; j < K; ++j) {
        if (!active || !inside(j)) continue;
        const auto w = weights(j);
        Vals<S, V> gj, hj, out;
        if constexpr (kHold) {
          gj = g[j], hj = h[j];
        } else {
          gj = values<T, V>(Pack<T, V>{from[j * kGroup]}),
          hj = values<T, V>(Pack<T, V>{from[plane + j * kGroup]});
#pragma unroll
          for (int k = 0; k < V; ++k) gj.v[k] *= w.v[k], hj.v[k] = normed<kCentred>(hj.v[k], mean, rstd);
        }
#pragma unroll
        for (int k = 0; k < V; ++k)
          out.v[k] = fma(hj.v[k], along, kCentred ? fma(gj.v[k], rstd, level) : gj.v[k] * rstd);
        if (adds) {
          const auto more = values<T, V>(Pack<T, V>{from[2 * plane + j * kGroup]});
#pragma unroll
          for (int k = 0; k < V; ++k) out.v[k] += more.v[k];
        }
        store<V>(a.dx + start + j * kGroup * V, out);
      }
    }
    __syncwarp();  // the statistics have been read
    fetch_row(row + kStages * step, start + kStages * stride, stage);
    stage = stage + 1 == kStages ? 0 : stage + 1;
  }
  if constexpr (kDw) {
    S* const all = reinterpret_cast<S*>(dynamic);  // [row of the block, n] when there are several rows
    await_copies<0>();
#pragma unroll
    for (int out = 0; out < (kCentred ? 2 : 1); ++out) {
      S* const partial = a.partial + (static_cast<int64_t>(out) * gridDim.x + blockIdx.x) * a.n;
      if constexpr (kRows > 1) __syncthreads();
      S* const to = kRows > 1 ? all + member * a.n : partial;
#pragma unroll
      for (int j = 0; j < K; ++j) {
        const int p = lane + j * kGroup;
        if (!inside(j)) continue;
#pragma unroll
        for (int k = 0; k < V; k += 4) {
          const S* const from = (kCentred && out == 1 ? db : dw) + (kDw ? j * V + k : 0);
          *reinterpret_cast<float4*>(to + p * V + k) = make_float4(from[0], from[1], from[2], from[3]);
        }
      }
      if constexpr (kRows > 1) {
        __syncthreads();
        for (int i = static_cast<int>(threadIdx.x); i < a.n; i += static_cast<int>(blockDim.x)) {
          S sum = all[i];
          for (int q = 1; q < kRows; ++q) sum += all[q * a.n + i];
          partial[i] = sum;
        }
      }
    }
  }
}

// out[n] = (or +=) the sum of partial[chunks, n], rounded to D once; the second sums follow the first. A
// block has kTotalColumns columns, with enough threads for each that all their loads are in flight at once.
inline constexpr int kTotalColumns = 8, kTotalLoads = 5;
template <class D>
__global__ void __launch_bounds__(1024)
    total_kernel(const float* partial, int chunks, int64_t n, D* first, D* second, bool accumulate) {
  await_previous();
  const int column = static_cast<int>(threadIdx.x) % kTotalColumns,
            from = static_cast<int>(threadIdx.x) / kTotalColumns,
            step = static_cast<int>(blockDim.x) / kTotalColumns;
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kTotalColumns + column;
  partial += static_cast<int64_t>(blockIdx.y) * chunks * n;
  D* const out = blockIdx.y == 0 ? first : second;
  float sum = 0;
  for (int base = from; base < chunks; base += kTotalLoads * step) {
    float part[kTotalLoads];
#pragma unroll
    for (int i = 0; i < kTotalLoads; ++i) {
      const int chunk = base + i * step;
      part[i] = chunk < chunks && at < n ? partial[chunk * n + at] : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < kTotalLoads; ++i) sum += part[i];
  }
#pragma unroll
  for (int d = kTotalColumns; d < 32; d *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
  __shared__ float shared[32][kTotalColumns];
  if (threadIdx.x % 32 < kTotalColumns) shared[threadIdx.x / 32][column] = sum;
  __syncthreads();
  if (threadIdx.x >= kTotalColumns || at >= n) return;
  sum = shared[0][column];
  for (int w = 1; w < static_cast<int>(blockDim.x / 32); ++w) sum += shared[w][column];
  if (accumulate) sum += load<1>(out + at).v[0];
  store<1>(out + at, Vals<float, 1>{{sum}});
}

template <class D>
void total(const float* partial, int64_t chunks, int64_t n, D* first, D* second, bool accumulate,
           Stream stream) {
  int threads = 256;
  while (threads < 1024 && chunks * kTotalColumns > int64_t{threads} * kTotalLoads) threads *= 2;
  const dim3 grid(static_cast<unsigned>(divide_up(n, kTotalColumns)), second != nullptr ? 2 : 1);
  // Splits L1 like the kernel before it, so that no multiprocessor stalls to reconfigure.
  check(cudaFuncSetAttribute(total_kernel<D>, cudaFuncAttributePreferredSharedMemoryCarveout,
                             cudaSharedmemCarveoutMaxShared),
        "norm_dw");
  total_kernel<<<grid, threads, 0, stream>>>(partial, static_cast<int>(chunks), n, first, second, accumulate);
  check_launch("norm_dw");
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
    const S g = load<1>(a.dy + start + i).v[0] * (load<1>(a.w + i).v[0] + a.offset);
    total[0] += g * ((load<1>(a.x + start + i).v[0] - mean) * rstd);
    if constexpr (kCentred) total[1] += g;
  }
  group_sum<0>(total, shared);
  const S along = total[0] / S(a.n), level = total[1] / S(a.n);
  for (int64_t i = threadIdx.x; i < a.n; i += blockDim.x) {
    const S w = load<1>(a.w + i).v[0] + a.offset,
            h = normed<kCentred>(load<1>(a.x + start + i).v[0], mean, rstd);
    auto d = load<1>(a.dy + start + i);
    d.v[0] = rstd * (d.v[0] * w - level - h * along);
    if (a.addend != nullptr) d.v[0] += load<1>(a.addend + start + i).v[0];
    store<1>(a.dx + start + i, d);
    if (a.y == nullptr) continue;
    const S b = kCentred && a.b != nullptr ? load<1>(a.b + i).v[0] : S(0);
    store<1>(a.y + start + i, Vals<S, 1>{{weighted<kCentred>(h, w, b)}});
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

// The shares of blocks and the number of blocks. `most` run at a time; those with even shares iterate equally
// often.
//
// Multiprocessors that write two rows for three that they read are not equally fast: with equal shares the
// last ends 1.7 times later than the first. So most rows are shared evenly, and the rest goes to small
// blocks, which start as others finish. Which rows are summed together is the same in every run.
std::pair<Shares, int64_t> shares_of(int64_t rows, int at_once, int64_t most, bool uneven) {
  constexpr int kMinRounds = 8;
  const int64_t units = divide_up(rows, at_once), places = kNormPartials - most;
  if (!uneven || units < kMinRounds * most || places < most / 2) {  // the late ones would not be small
    const int64_t blocks = divide_up(units, divide_up(units, most));
    return {{static_cast<int>(blocks), static_cast<int>(rows), 0}, blocks};
  }
  const int64_t even = units * 92 / 100 / most * most, late = units - even;
  const int64_t each = divide_up(late, most < places ? most : places);
  return {{static_cast<int>(most), static_cast<int>(even * at_once), static_cast<int>(each * at_once)},
          most + divide_up(late, each)};
}

template <bool kCentred, bool kDx, bool kDw, class T, class D>
void backward(const Backward<T>& a, D* dw, D* db, bool accumulate, Stream stream) {
  if constexpr (!std::is_same_v<T, double>) {
    const bool wide = a.rows > 0 && a.rows <= kNormMaxRows && a.n % kWide<T> == 0 &&
                      all_aligned16(a.dy, a.x, a.w, a.b, a.addend, a.dx, a.y);
    const int64_t packs = a.n / kWide<T>;
    int64_t blocks = 0;
    const bool done =
        wide && with_norm_shape(Shapes{}, packs, [&](auto shape) {
          using Shape = decltype(shape);
          const auto kernel = backward_kernel<T, Shape, kCentred, kDx, kDw>;
          constexpr int kStages = Shape::template kStages<kDx>;
          int64_t bytes = Shape::bytes(packs, kStages * (a.addend != nullptr ? 3 : 2));
          const int64_t sums = kDw && Shape::kRows > 1 ? Shape::kRows * a.n * int64_t{4} : 0;
          if (bytes < sums) bytes = sums;
          int64_t most = resident_blocks(kernel, Shape::kThreads, bytes,
                                         Shape::bytes(Shape::kMaxPacks, kStages * (kDx ? 3 : 2)));
          if (most == 0) return false;
          if (kDw && most > kNormPartials) most = kNormPartials;
          Shares shares;
          std::tie(shares, blocks) = shares_of(a.rows, Shape::kRows, most, kDw && a.y != nullptr);
          kernel<<<static_cast<unsigned>(blocks), Shape::kThreads, static_cast<size_t>(bytes), stream>>>(
              a, shares);
          check_launch("norm_backward");
          return true;
        });
    if (done) {
      if constexpr (kDw) total(a.partial, blocks, a.n, dw, kCentred ? db : nullptr, accumulate, stream);
      return;
    }
  }
  if constexpr (kDw) weight_gradient<kCentred>(a, dw, db, accumulate, stream);  // first: dx may be dy
  if (!kDx || a.rows <= 0 || a.n <= 0) return;
  dx_any_kernel<T, kCentred><<<static_cast<unsigned>(a.rows), kNormAnyThreads, 0, stream>>>(a);
  check_launch("norm_dx");
}

}  // namespace

template <class T>
void rmsnorm_dx(const T* dy, const T* x, const T* w, const Stat<T>* rstd, const T* addend, T* dx,
                int64_t rows, int64_t n, Stream stream, double offset) {
  backward<false, true, false>(Backward<T>{dy, x, w, nullptr, nullptr, rstd, addend, dx, nullptr, nullptr,
                                           rows, n, static_cast<Stat<T>>(offset)},
                               static_cast<Grad<T>*>(nullptr), static_cast<Grad<T>*>(nullptr), false, stream);
}
template <class T, class D>
void rmsnorm_dw(const T* dy, const T* x, const Stat<T>* rstd, D* dw, bool accumulate, int64_t rows, int64_t n,
                void* workspace, Stream stream) {
  backward<false, false, true>(Backward<T>{dy, x, nullptr, nullptr, nullptr, rstd, nullptr, nullptr, nullptr,
                                           static_cast<Stat<T>*>(workspace), rows, n},
                               dw, static_cast<D*>(nullptr), accumulate, stream);
}
template <class T, class D>
void rmsnorm_backward(const T* dy, const T* x, const T* w, const Stat<T>* rstd, const T* addend, T* dx, T* y,
                      D* dw, bool accumulate, int64_t rows, int64_t n, void* workspace, Stream stream,
                      double offset) {
  backward<false, true, true>(
      Backward<T>{dy, x, w, nullptr, nullptr, rstd, addend, dx, y, static_cast<Stat<T>*>(workspace), rows, n,
                  static_cast<Stat<T>>(offset)},
      dw, static_cast<D*>(nullptr), accumulate, stream);
}

template <class T>
void layernorm_dx(const T* dy, const T* x, const T* w, const Stat<T>* mean, const Stat<T>* rstd,
                  const T* addend, T* dx, int64_t rows, int64_t n, Stream stream) {
  backward<true, true, false>(
      Backward<T>{dy, x, w, nullptr, mean, rstd, addend, dx, nullptr, nullptr, rows, n},
      static_cast<Grad<T>*>(nullptr), static_cast<Grad<T>*>(nullptr), false, stream);
}
template <class T, class D>
void layernorm_dw(const T* dy, const T* x, const Stat<T>* mean, const Stat<T>* rstd, D* dw,
                  std::type_identity_t<D>* db, bool accumulate, int64_t rows, int64_t n, void* workspace,
                  Stream stream) {
  backward<true, false, true>(Backward<T>{dy, x, nullptr, nullptr, mean, rstd, nullptr, nullptr, nullptr,
                                          static_cast<Stat<T>*>(workspace), rows, n},
                              dw, db, accumulate, stream);
}
template <class T, class D>
void layernorm_backward(const T* dy, const T* x, const T* w, const T* b, const Stat<T>* mean,
                        const Stat<T>* rstd, const T* addend, T* dx, T* y, D* dw, std::type_identity_t<D>* db,
                        bool accumulate, int64_t rows, int64_t n, void* workspace, Stream stream) {
  backward<true, true, true>(
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

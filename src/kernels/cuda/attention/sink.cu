#include "kernels/cuda/attention/sink.h"
#include "kernels/cuda/support/launch.cuh"
#include "kernels/cuda/support/thread_group.cuh"
#include "kernels/cuda/support/vector16.cuh"

namespace quintet::kernels::cuda {
namespace {

inline constexpr int kThreads = 256, kWarps = kThreads / 32;

// A warp has one head of a row.
template <class T>
__global__ void __launch_bounds__(kThreads)
    sink_kernel(const T* o, const Stat<T>* lse, const T* sink, T* o_out, Stat<T>* lse_out, int64_t rows,
                int64_t heads, int64_t d) {
  await_previous();
  using S = Stat<T>;
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (at >= rows * heads) return;
  const int64_t r = at / heads, h = at % heads, lane = threadIdx.x % 32;
  const S before = lse[h * rows + r], s = load<1>(sink + h).v[0], most = before > s ? before : s;
  const S after = most + log(exp(before - most) + exp(s - most));
  const S factor = exp(before - after);  // 0 for a row without keys, whose lse is -inf
  for (int64_t i = lane; i < d; i += 32)
    store<1>(o_out + at * d + i, Vals<S, 1>{{factor * load<1>(o + at * d + i).v[0]}});
  __syncwarp();  // all lanes have read lse, which may be lse_out
  if (lane == 0) lse_out[h * rows + r] = after;
}

// A block has a head.
template <class T, class D>
__global__ void __launch_bounds__(kThreads)
    sink_dw_kernel(const T* dout, const T* o, const Stat<T>* lse, const T* sink, D* dsink, bool accumulate,
                   int64_t rows, int64_t heads, int64_t d) {
  await_previous();
  using S = Stat<T>;
  __shared__ S shared[32];
  const int64_t h = blockIdx.x;
  const S score = load<1>(sink + h).v[0];
  S sum[1] = {S(0)};
  for (int64_t r = threadIdx.x / 32; r < rows; r += kWarps) {
    const S share = exp(score - lse[h * rows + r]);
    for (int64_t i = threadIdx.x % 32; i < d; i += 32) {
      const int64_t at = (r * heads + h) * d + i;
      sum[0] -= share * load<1>(dout + at).v[0] * load<1>(o + at).v[0];
    }
  }
  group_sum<0>(sum, shared);
  if (threadIdx.x != 0) return;
  if (accumulate) sum[0] += load<1>(dsink + h).v[0];
  store<1>(dsink + h, Vals<S, 1>{{sum[0]}});
}

}  // namespace

template <class T>
void attention_sink(const T* o, const Stat<T>* lse, const T* sink, T* o_out, Stat<T>* lse_out, int64_t rows,
                    int64_t heads, int64_t d, Stream stream) {
  if (rows * heads <= 0) return;
  sink_kernel<<<static_cast<unsigned>(divide_up(rows * heads, int64_t{kWarps})), kThreads, 0, stream>>>(
      o, lse, sink, o_out, lse_out, rows, heads, d);
  check_launch("attention_sink");
}

template <class T, class D>
void attention_sink_dw(const T* dout, const T* o, const Stat<T>* lse, const T* sink, D* dsink,
                       bool accumulate, int64_t rows, int64_t heads, int64_t d, Stream stream) {
  if (heads <= 0) return;
  sink_dw_kernel<<<static_cast<unsigned>(heads), kThreads, 0, stream>>>(dout, o, lse, sink, dsink, accumulate,
                                                                        rows, heads, d);
  check_launch("attention_sink_dw");
}

#define INSTANTIATE(T)                                    \
  template decltype(attention_sink<T>) attention_sink<T>; \
  template decltype(attention_sink_dw<T, Grad<T>>) attention_sink_dw<T, Grad<T>>;
INSTANTIATE(double)
INSTANTIATE(float)
INSTANTIATE(Bf16)
INSTANTIATE(F16)
#undef INSTANTIATE
template decltype(attention_sink_dw<Bf16, Bf16>) attention_sink_dw<Bf16, Bf16>;

}  // namespace quintet::kernels::cuda

#include "kernels/cuda/experts/expert_bias.h"
#include "kernels/cuda/support/launch.cuh"
#include "kernels/cuda/support/vector16.cuh"

namespace quintet::kernels::cuda {
namespace {

inline constexpr int kThreads = 256;

struct Rows {
  int64_t begin, end;
};
// The rows of an expert: counted by every block, of which there are few.
__device__ Rows rows_of(const int32_t* received, int64_t experts, int64_t sources, int64_t expert) {
  int64_t begin = 0, count = 0;
  for (int64_t s = 0; s < sources; ++s) {
    for (int64_t e = 0; e < expert; ++e) begin += received[s * experts + e];
    count += received[s * experts + expert];
  }
  return {begin, begin + count};
}

// A block has 256 columns of one expert, of every gridDim.z-th row.
template <class T>
__global__ void __launch_bounds__(kThreads)
    expert_bias_kernel(const T* y, const T* b, const int32_t* received, int64_t experts, int64_t sources,
                       T* out, int64_t n) {
  await_previous();
  const int64_t expert = blockIdx.y, i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= n) return;
  const Rows rows = rows_of(received, experts, sources, expert);
  const Stat<T> bias = load<1>(b + expert * n + i).v[0];
  for (int64_t r = rows.begin + blockIdx.z; r < rows.end; r += gridDim.z)
    store<1>(out + r * n + i, Vals<Stat<T>, 1>{{load<1>(y + r * n + i).v[0] + bias}});
}

template <class T, class D>
__global__ void __launch_bounds__(kThreads)
    expert_bias_dw_kernel(const T* dy, const int32_t* received, int64_t experts, int64_t sources, D* db,
                          bool accumulate, int64_t n) {
  await_previous();
  const int64_t expert = blockIdx.y, i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= n) return;
  const Rows rows = rows_of(received, experts, sources, expert);
  Stat<T> sum = 0;
  for (int64_t r = rows.begin; r < rows.end; ++r) sum += load<1>(dy + r * n + i).v[0];
  if (accumulate) sum += load<1>(db + expert * n + i).v[0];
  store<1>(db + expert * n + i, Vals<Stat<T>, 1>{{sum}});
}

template <class S>
__global__ void __launch_bounds__(kThreads)
    spread_kernel(const S* weights, const int32_t* chosen, S* out, int64_t rows, int64_t k, int64_t experts) {
  await_previous();
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= rows * experts) return;
  const int64_t r = at / experts, e = at % experts;
  S value = 0;
  for (int64_t j = 0; j < k; ++j)
    if (chosen[r * k + j] == e) value = weights[r * k + j];
  out[at] = value;
}

template <class S>
__global__ void __launch_bounds__(kThreads)
    gather_kernel(const S* numbers, const int32_t* chosen, S* out, int64_t rows, int64_t k, int64_t experts) {
  await_previous();
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at < rows * k) out[at] = chosen[at] >= 0 ? numbers[at / k * experts + chosen[at]] : S(0);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    router_bias_kernel(const T* b, Stat<T>* logits, int64_t rows, int64_t routes) {
  await_previous();
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at < rows * routes) logits[at] += load<1>(b + at % routes).v[0];
}

unsigned blocks_of(int64_t n) { return static_cast<unsigned>(divide_up(n, int64_t{kThreads})); }

}  // namespace

template <class T>
void expert_bias(const T* y, const T* b, const int32_t* received, int64_t experts, int64_t sources, T* out,
                 int64_t n, Stream stream) {
  if (experts <= 0 || n <= 0) return;
  const dim3 grid(blocks_of(n), static_cast<unsigned>(experts), 32);
  expert_bias_kernel<<<grid, kThreads, 0, stream>>>(y, b, received, experts, sources, out, n);
  check_launch("expert_bias");
}

template <class T, class D>
void expert_bias_dw(const T* dy, const int32_t* received, int64_t experts, int64_t sources, D* db,
                    bool accumulate, int64_t n, Stream stream) {
  if (experts <= 0 || n <= 0) return;
  const dim3 grid(blocks_of(n), static_cast<unsigned>(experts));
  expert_bias_dw_kernel<<<grid, kThreads, 0, stream>>>(dy, received, experts, sources, db, accumulate, n);
  check_launch("expert_bias_dw");
}

template <class S>
void spread_choices(const S* weights, const int32_t* chosen, S* out, int64_t rows, int64_t k, int64_t experts,
                    Stream stream) {
  if (rows <= 0) return;
  spread_kernel<<<blocks_of(rows * experts), kThreads, 0, stream>>>(weights, chosen, out, rows, k, experts);
  check_launch("spread_choices");
}

template <class S>
void gather_choices(const S* numbers, const int32_t* chosen, S* out, int64_t rows, int64_t k, int64_t experts,
                    Stream stream) {
  if (rows <= 0) return;
  gather_kernel<<<blocks_of(rows * k), kThreads, 0, stream>>>(numbers, chosen, out, rows, k, experts);
  check_launch("gather_choices");
}

template <class T>
void add_router_bias(const T* b, Stat<T>* logits, int64_t rows, int64_t routes, Stream stream) {
  if (rows <= 0) return;
  router_bias_kernel<<<blocks_of(rows * routes), kThreads, 0, stream>>>(b, logits, rows, routes);
  check_launch("add_router_bias");
}

#define INSTANTIATE(T)                                                      \
  template decltype(expert_bias<T>) expert_bias<T>;                         \
  template decltype(expert_bias_dw<T, Grad<T>>) expert_bias_dw<T, Grad<T>>; \
  template decltype(add_router_bias<T>) add_router_bias<T>;
INSTANTIATE(double)
INSTANTIATE(float)
INSTANTIATE(Bf16)
INSTANTIATE(F16)
#undef INSTANTIATE
template decltype(expert_bias_dw<Bf16, Bf16>) expert_bias_dw<Bf16, Bf16>;
template decltype(spread_choices<double>) spread_choices<double>;
template decltype(spread_choices<float>) spread_choices<float>;
template decltype(gather_choices<double>) gather_choices<double>;
template decltype(gather_choices<float>) gather_choices<float>;

}  // namespace quintet::kernels::cuda

#include "kernels/cuda/elementwise/each.cuh"
#include "kernels/cuda/optimizer/scalars.h"
#include "kernels/cuda/support/philox.cuh"

namespace quintet::kernels::cuda {
namespace {

__global__ void count_to_seed_kernel(const double* count, const double* scale, double* seed) {
  await_previous();
  *seed = *count > 0 ? *scale / *count : 0.0;
}

__global__ void clip_scale_kernel(ClipScalars s, double max_norm, ScaleRule rule, bool largest) {
  await_previous();
  const double scale = *s.loss_scale, norm = (largest ? *s.sum_squares : sqrt(*s.sum_squares)) / scale;
  const bool finite = isfinite(*s.loss), sound = isfinite(norm) && finite;
  const bool spike = s.loss_limit != nullptr && (*s.loss > *s.loss_limit * *s.count || norm > *s.norm_limit);
  const bool ok = sound && !spike;
  const bool mended = !sound && rule.window > 0 && finite && scale > rule.least;
  *s.norm = norm;
  *s.ok = ok ? 1.0 : 0.0;
  *s.clip_scale = (max_norm > 0 && norm > max_norm ? max_norm / norm : 1.0) / scale;
  *s.update_count += ok ? 1.0 : 0.0;
  *s.skipped_in_row = ok ? 0.0 : *s.skipped_in_row + (mended ? 0.0 : 1.0);
  *s.skipped_total += ok ? 0.0 : 1.0;
  if (rule.window == 0) return;
  const double good = sound ? *s.good_steps + 1 : 0.0;
  const bool grows = good >= static_cast<double>(rule.window);
  *s.good_steps = grows ? 0.0 : good;
  const double overflows = (s.overflows != nullptr ? *s.overflows : 0.0) + (sound ? 0.0 : 1.0);
  const bool halves = !sound && overflows >= static_cast<double>(rule.hysteresis);
  *s.loss_scale = halves ? fmax(scale / 2, rule.least) : grows ? scale * 2 : scale;
  if (s.overflows != nullptr) *s.overflows = grows ? 0.0 : overflows;
}

__global__ void derive_key_kernel(const int64_t* seed, uint64_t salt, uint64_t* key) {
  await_previous();
  const Words<4> words = philox(static_cast<uint64_t>(*seed), static_cast<uint32_t>(salt),
                                static_cast<uint32_t>(salt >> 32), 0, 0);
  *key = (uint64_t{words.w[0]} << 32) | words.w[1];
}

template <class S>
struct ScaleBy {
  const S* x;
  const double* factor;
  S* y;
  template <int V>
  __device__ Pack<S, V> load(int64_t i) const {
    return fetch<V>(x + i);
  }
  template <int V>
  __device__ void store(int64_t i, Pack<S, V> in) const {
    const S f = static_cast<S>(*factor);
    auto v = values<S, V>(in);
#pragma unroll
    for (int k = 0; k < V; ++k) v.v[k] *= f;
    cuda::store<V>(y + i, v);
  }
};

struct CopyRows {
  const uint4* x;
  uint4* y;
  int64_t stride;  // in 16-byte vectors
  template <int V>
  __device__ uint4 load(int64_t r, int64_t i) const {
    return x[r * stride + i];
  }
  template <int V>
  __device__ void store(int64_t r, int64_t i, uint4 pack) const {
    y[r * stride + i] = pack;
  }
};

}  // namespace

void count_to_seed(const double* count, const double* scale, double* seed, Stream stream) {
  count_to_seed_kernel<<<1, 1, 0, stream>>>(count, scale, seed);
  check_launch("count_to_seed");
}

void clip_scale(const ClipScalars& s, double max_norm, const ScaleRule& rule, bool largest, Stream stream) {
  clip_scale_kernel<<<1, 1, 0, stream>>>(s, max_norm, rule, largest);
  check_launch("clip_scale");
}

void derive_key(const int64_t* seed, uint64_t salt, uint64_t* key, Stream stream) {
  derive_key_kernel<<<1, 1, 0, stream>>>(seed, salt, key);
  check_launch("derive_key");
}

template <class S>
void scale_by(const S* x, const double* factor, S* y, int64_t n, Stream stream) {
  each<kWide<S>, 2>(ScaleBy<S>{x, factor, y}, n, all_aligned16(x, y), stream, "scale_by");
}
template decltype(scale_by<double>) scale_by<double>;
template decltype(scale_by<float>) scale_by<float>;

void copy(const void* x, void* y, int64_t bytes, Stream stream) {
  if (bytes <= 0 || x == y) return;
  check(cudaMemcpyAsync(y, x, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice, stream), "copy");
}

// Rows of whole 16-byte vectors use our own kernel, which is faster than cudaMemcpy2DAsync.
void copy_rows(const void* x, void* y, int64_t rows, int64_t bytes, int64_t stride, Stream stream) {
  if (bytes <= 0 || rows <= 0 || x == y) return;
  constexpr int64_t kPack = sizeof(uint4);
  if (bytes % kPack == 0 && stride % kPack == 0 && all_aligned16(x, y)) {
    const CopyRows body{static_cast<const uint4*>(x), static_cast<uint4*>(y), stride / kPack};
    return each_row<1, 2>(body, rows, bytes / kPack, false, stream, "copy_rows");
  }
  const auto pitch = static_cast<size_t>(stride);
  check(cudaMemcpy2DAsync(y, pitch, x, pitch, static_cast<size_t>(bytes), static_cast<size_t>(rows),
                          cudaMemcpyDeviceToDevice, stream),
        "copy_rows");
}

}  // namespace quintet::kernels::cuda

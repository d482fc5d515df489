#include "kernels/cuda/dropout.h"
#include "kernels/cuda/each.cuh"
#include "kernels/cuda/philox.cuh"

namespace quintet::kernels::cuda {
namespace {

template <class T>
struct Dropout {
  const T* x;
  T* y;
  const int32_t *samples, *positions;
  const uint64_t* key;
  uint64_t threshold;  // a word is kept from the threshold on
  Stat<T> scale;
  int64_t offset, n;
  template <int V>
  __device__ Pack<T, V> load(int64_t r, int64_t i) const {
    return fetch<V>(x + r * n + i);
  }
  template <int V>
  __device__ void store(int64_t r, int64_t i, Pack<T, V> in) const {
    auto v = values<T, V>(in);
    const auto position = static_cast<uint32_t>(positions[r]), sample = static_cast<uint32_t>(samples[r]);
    Words<4> words;
#pragma unroll
    for (int k = 0; k < V; ++k) {
      const int64_t feature = offset + i + k;
      // Packs of 4 and more begin at a multiple of 4, so the word's index is known when compiling.
      if (V < 4 || k % 4 == 0) words = philox(*key, static_cast<uint32_t>(feature >> 2), position, sample, 0);
      uint32_t word = words.w[k % 4];
      if constexpr (V < 4) {
        const int which = static_cast<int>(feature & 3);
        word = which == 0 ? words.w[0] : which == 1 ? words.w[1] : which == 2 ? words.w[2] : words.w[3];
      }
      v.v[k] = word >= threshold ? v.v[k] * scale : Stat<T>(0);
    }
    cuda::store<V>(y + r * n + i, v);
  }
};

}  // namespace

template <class T>
void dropout(const T* x, const int32_t* samples, const int32_t* positions, const uint64_t* key, double p,
             int64_t feature_offset, T* y, int64_t tokens, int64_t n, Stream stream) {
  constexpr int V = kWide<T>;
  const bool wide = n % V == 0 && (V < 4 || feature_offset % 4 == 0) && all_aligned16(x, y);
  each_row<V, 2>(Dropout<T>{x, y, samples, positions, key, keep_threshold(p),
                            static_cast<Stat<T>>(1.0 / (1.0 - p)), feature_offset, n},
                 tokens, n, wide, stream, "dropout");
}

template decltype(dropout<double>) dropout<double>;
template decltype(dropout<float>) dropout<float>;
template decltype(dropout<Bf16>) dropout<Bf16>;
template decltype(dropout<F16>) dropout<F16>;

}  // namespace quintet::kernels::cuda

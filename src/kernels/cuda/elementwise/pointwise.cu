#include <algorithm>

#include "kernels/cuda/elementwise/each.cuh"
#include "kernels/cuda/elementwise/pointwise.h"

namespace quintet::kernels::cuda {
namespace {

template <class T>
struct Add {
  const T *a, *b;
  T* c;
  template <int V>
  struct Loaded {
    Pack<T, V> a, b;
  };
  template <int V>
  __device__ Loaded<V> load(int64_t i) const {
    return {fetch<V>(a + i), fetch<V>(b + i)};
  }
  template <int V>
  __device__ void store(int64_t i, Loaded<V> x) const {
    auto sum = values<T, V>(x.a);
    const auto other = values<T, V>(x.b);
#pragma unroll
    for (int k = 0; k < V; ++k) sum.v[k] += other.v[k];
    cuda::store<V>(c + i, sum);
  }
};

template <class T>
struct AddBias {
  const T *x, *b;
  T* y;
  int64_t n;
  template <int V>
  struct Loaded {
    Pack<T, V> x, b;
  };
  template <int V>
  __device__ Loaded<V> load(int64_t r, int64_t i) const {
    return {fetch<V>(x + r * n + i), fetch<V>(b + i)};
  }
  template <int V>
  __device__ void store(int64_t r, int64_t i, Loaded<V> in) const {
    auto sum = values<T, V>(in.x);
    const auto other = values<T, V>(in.b);
#pragma unroll
    for (int k = 0; k < V; ++k) sum.v[k] += other.v[k];
    cuda::store<V>(y + r * n + i, sum);
  }
};

// y = alpha x, or y + alpha x, in the wider of the two Stat types.
template <class X, class Y, bool kAdd>
struct Convert {
  using W = std::conditional_t<std::is_same_v<X, double> || std::is_same_v<Y, double>, double, float>;
  const X* x;
  Y* y;
  W alpha;
  template <int V>
  struct Loaded {
    Pack<X, V> x;
    Pack<Y, V> y;
  };
  template <int V>
  __device__ Loaded<V> load(int64_t i) const {
    Loaded<V> out;
    out.x = fetch<V>(x + i);
    if constexpr (kAdd) out.y = fetch<V>(y + i);
    return out;
  }
  template <int V>
  __device__ void store(int64_t i, Loaded<V> in) const {
    const auto from = values<X, V>(in.x);
    Vals<Stat<Y>, V> to;
    if constexpr (kAdd) to = values<Y, V>(in.y);
#pragma unroll
    for (int k = 0; k < V; ++k) {
      const W term = alpha * static_cast<W>(from.v[k]);
      to.v[k] = static_cast<Stat<Y>>(kAdd ? static_cast<W>(to.v[k]) + term : term);
    }
    cuda::store<V>(y + i, to);
  }
};

template <class X, class Y, bool kAdd>
void convert(const X* x, Y* y, double alpha, int64_t n, Stream stream, const char* what) {
  using C = Convert<X, Y, kAdd>;
  // The wider type sets the width; the narrower one is moved 4 or 8 bytes at a time, still in one access.
  constexpr int width = 16 / static_cast<int>(std::max(sizeof(X), sizeof(Y)));
  each<width, 4>(C{x, y, static_cast<typename C::W>(alpha)}, n, all_aligned16(x, y), stream, what);
}

template <class T>
struct Fill {
  T* y;
  Stat<T> value;
  template <int V>
  __device__ int load(int64_t) const {
    return 0;
  }
  template <int V>
  __device__ void store(int64_t i, int) const {
    Vals<Stat<T>, V> all;
#pragma unroll
    for (int k = 0; k < V; ++k) all.v[k] = value;
    cuda::store<V>(y + i, all);
  }
};

template <class T>
struct Noise {
  T* y;
  template <int V>
  __device__ int load(int64_t) const {
    return 0;
  }
  template <int V>
  __device__ void store(int64_t i, int) const {
    Vals<Stat<T>, V> v;
#pragma unroll
    for (int k = 0; k < V; ++k) {
      uint32_t h = static_cast<uint32_t>(i + k) * 2654435761u;
      h = (h ^ h >> 15) * 2246822519u;
      v.v[k] = static_cast<Stat<T>>(static_cast<int32_t>(h ^ h >> 13)) * Stat<T>(0x1p-31);
    }
    cuda::store<V>(y + i, v);
  }
};

// Block r of y comes from block (r % a) * b + r / a of x. Word is the unit of the copy.
template <class Word>
struct SwapBlocks {
  const Word* x;
  Word* y;
  int64_t a, b, words;
  template <int V>
  __device__ Word load(int64_t r, int64_t i) const {
    return x[(r % a * b + r / a) * words + i];
  }
  template <int V>
  __device__ void store(int64_t r, int64_t i, Word w) const {
    y[r * words + i] = w;
  }
};

template <class Word>
void swap_words(const void* x, void* y, int64_t a, int64_t b, int64_t bytes, Stream stream) {
  const int64_t words = bytes / static_cast<int64_t>(sizeof(Word));
  each_row<1, 4>(SwapBlocks<Word>{static_cast<const Word*>(x), static_cast<Word*>(y), a, b, words}, a * b,
                 words, false, stream, "swap_blocks");
}

}  // namespace

template <class T>
void add(const T* a, const T* b, T* c, int64_t n, Stream stream) {
  each<kWide<T>, 2>(Add<T>{a, b, c}, n, all_aligned16(a, b, c), stream, "add");
}

template <class T>
void add_bias(const T* x, const T* b, T* y, int64_t rows, int64_t n, Stream stream) {
  each_row<kWide<T>, 4>(AddBias<T>{x, b, y, n}, rows, n, n % kWide<T> == 0 && all_aligned16(x, b, y), stream,
                        "add_bias");
}

template <class X, class Y>
void accumulate(const X* x, Y* y, double alpha, int64_t n, Stream stream) {
  convert<X, Y, true>(x, y, alpha, n, stream, "accumulate");
}

template <class X, class Y>
void cast(const X* x, Y* y, int64_t n, Stream stream) {
  convert<X, Y, false>(x, y, 1.0, n, stream, "cast");
}

template <class T>
void fill(T* y, double value, int64_t n, Stream stream) {
  each<kWide<T>, 4>(Fill<T>{y, static_cast<Stat<T>>(value)}, n, aligned16(y), stream, "fill");
}

template <class T>
void fill_noise(T* y, int64_t n, Stream stream) {
  each<kWide<T>, 2>(Noise<T>{y}, n, aligned16(y), stream, "fill_noise");
}

void zero(void* y, int64_t bytes, Stream stream) {
  if (bytes > 0) check(cudaMemsetAsync(y, 0, static_cast<size_t>(bytes), stream), "zero");
}

template <class T>
void scale(const T* x, double alpha, T* y, int64_t n, Stream stream) {
  convert<T, T, false>(x, y, alpha, n, stream, "scale");
}

void swap_blocks(const void* x, void* y, int64_t a, int64_t b, int64_t block_bytes, Stream stream) {
  if (block_bytes % 16 == 0 && all_aligned16(x, y)) return swap_words<uint4>(x, y, a, b, block_bytes, stream);
  const auto low = reinterpret_cast<uintptr_t>(x) | reinterpret_cast<uintptr_t>(y);
  if (block_bytes % 2 == 0 && low % 2 == 0) return swap_words<uint16_t>(x, y, a, b, block_bytes, stream);
  swap_words<uint8_t>(x, y, a, b, block_bytes, stream);
}

#define INSTANTIATE(T)                            \
  template decltype(add<T>) add<T>;               \
  template decltype(add_bias<T>) add_bias<T>;     \
  template decltype(fill<T>) fill<T>;             \
  template decltype(fill_noise<T>) fill_noise<T>; \
  template decltype(scale<T>) scale<T>;
#define INSTANTIATE_PAIR(X, Y)                          \
  template decltype(accumulate<X, Y>) accumulate<X, Y>; \
  template decltype(cast<X, Y>) cast<X, Y>;
#define INSTANTIATE_PAIRS(X)  \
  INSTANTIATE_PAIR(X, double) \
  INSTANTIATE_PAIR(X, float)  \
  INSTANTIATE_PAIR(X, Bf16)   \
  INSTANTIATE_PAIR(X, F16)
INSTANTIATE(double)
INSTANTIATE(float)
INSTANTIATE(Bf16)
INSTANTIATE(F16)
INSTANTIATE_PAIRS(double)
INSTANTIATE_PAIRS(float)
INSTANTIATE_PAIRS(Bf16)
INSTANTIATE_PAIRS(F16)
#undef INSTANTIATE
#undef INSTANTIATE_PAIR
#undef INSTANTIATE_PAIRS

}  // namespace quintet::kernels::cuda

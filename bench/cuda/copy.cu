#include "cuda/copy.h"
#include "kernels/cuda/elementwise/each.cuh"

namespace quintet::bench {
namespace {

struct Copy {
  const uint8_t* from;
  uint8_t* to;
  template <int V>
  using Raw = std::conditional_t<V == 16, uint4, uint8_t>;
  template <int V>
  __device__ Raw<V> load(int64_t i) const {
    return *reinterpret_cast<const Raw<V>*>(from + i);
  }
  template <int V>
  __device__ void store(int64_t i, Raw<V> x) const {
    *reinterpret_cast<Raw<V>*>(to + i) = x;
  }
};

}  // namespace

void copy_by_kernel(const void* from, void* to, int64_t bytes, kernels::cuda::Stream stream) {
  const Copy copy{static_cast<const uint8_t*>(from), static_cast<uint8_t*>(to)};
  kernels::cuda::each<16, 4>(copy, bytes, kernels::cuda::all_aligned16(from, to), stream, "copy");
}

}  // namespace quintet::bench

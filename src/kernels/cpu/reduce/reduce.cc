#include "kernels/cpu/reduce/reduce.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/reduce/chunks.h"
#include "kernels/cpu/support/isa.h"

namespace quintet::kernels::cpu {

QUINTET_SELECT_VARIANT(reduce_variants, ReduceVariants)

template <class T>
void sum_squares(const T* x, int64_t n, double* out, bool accumulate, void* workspace, ThreadPool& pool) {
  variants<T>().sum_squares(x, n, out, accumulate, workspace, pool);
}

template <class T>
void max_abs(const T* x, int64_t n, double* out, void* workspace, ThreadPool& pool) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  auto* const partial = static_cast<double*>(workspace);
  const int64_t chunks = chunk_count(n, kFlatChunk);
  pool.parallel_for(0, chunks, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t c = begin; c < end; ++c) {
      double largest = 0;
      for (int64_t i = c * kFlatChunk; i < std::min(n, (c + 1) * kFlatChunk); ++i) {
        const double a = std::abs(static_cast<double>(static_cast<Stat<T>>(x[i])));
        if (!(a <= largest)) largest = a == a ? a : kInfinity;
      }
      partial[c] = largest;
    }
  });
  for (int64_t c = 0; c < chunks; ++c) *out = std::max(*out, partial[c]);
}

template <class T>
void any_nonfinite(const T* x, int64_t n, int32_t* out, bool accumulate, void* workspace, ThreadPool& pool) {
  variants<T>().any_nonfinite(x, n, out, accumulate, workspace, pool);
}

template <class T>
void column_sum(const T* dy, Grad<T>* db, bool accumulate, int64_t rows, int64_t n, void* workspace,
                ThreadPool& pool) {
  variants<T>().column_sum(dy, db, accumulate, rows, n, workspace, pool);
}

int64_t reduce_workspace_bytes(int64_t n) {
  return chunk_count(n, kFlatChunk) * static_cast<int64_t>(sizeof(double));
}

template <class T>
int64_t column_sum_workspace_bytes(int64_t rows, int64_t n) {
  return column_chunks(rows) * n * static_cast<int64_t>(sizeof(Stat<T>));
}

int64_t hash_workspace_bytes(int64_t bytes) {
  return chunk_count(bytes, kHashChunk) * static_cast<int64_t>(sizeof(uint64_t));
}

uint64_t hash_bytes(const void* data, int64_t bytes, uint64_t seed, void* workspace, ThreadPool& pool) {
  return variants<float>().hash_bytes(data, bytes, seed, workspace, pool);
}

#define INSTANTIATE(T)                                                            \
  template decltype(sum_squares<T>) sum_squares<T>;                               \
  template decltype(max_abs<T>) max_abs<T>;                                       \
  template decltype(any_nonfinite<T>) any_nonfinite<T>;                           \
  template decltype(column_sum_workspace_bytes<T>) column_sum_workspace_bytes<T>; \
  template decltype(column_sum<T>) column_sum<T>;
INSTANTIATE(double)
INSTANTIATE(float)
INSTANTIATE(Bf16)
INSTANTIATE(F16)
#undef INSTANTIATE

}  // namespace quintet::kernels::cpu

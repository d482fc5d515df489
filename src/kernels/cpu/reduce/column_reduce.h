// Sums over rows, one per column: partial sums of fixed chunks of rows, then the chunks in order.
#pragma once

#include "kernels/cpu/reduce/chunks.h"
#include "kernels/cpu/support/simd.h"

namespace quintet::kernels::cpu::QUINTET_ISA {

// The contribution of one row to K sums at one vector of columns.
template <class S, int K>
struct Columns {
  Vec<S> v[K];
};

// outputs[k][i] = (or +=) sum over rows of term(row, i, count).v[k]; a null output is skipped. The workspace
// holds column_chunks(rows) * K * n elements of S.
template <class S, int K, class F>
void column_reduce(int64_t rows, int64_t n, S* const (&outputs)[K], bool accumulate, void* workspace,
                   ThreadPool& pool, F term) {
  const int64_t chunks = column_chunks(rows);
  S* partial = static_cast<S*>(workspace);
  pool.parallel_for(0, chunks, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t c = begin; c < end; ++c) {
      S* sums = partial + c * K * n;
      const int64_t first = rows * c / chunks, last = rows * (c + 1) / chunks;
      std::memset(sums, 0, sizeof(S) * static_cast<size_t>(K * n));
      // Four rows at a time: a quarter of the traffic on the running sums.
      int64_t r = first;
      for (; r + 4 <= last; r += 4)
        each<S>(n, [&](int64_t i, auto count) {
          const Columns<S, K> a = term(r, i, count), b = term(r + 1, i, count), d = term(r + 2, i, count),
                              e = term(r + 3, i, count);
          for (int k = 0; k < K; ++k) {
            S* at = sums + k * n + i;
            store<S>(at, load<S>(at, count) + ((a.v[k] + b.v[k]) + (d.v[k] + e.v[k])), count);
          }
        });
      for (; r < last; ++r)
        each<S>(n, [&](int64_t i, auto count) {
          const Columns<S, K> a = term(r, i, count);
          for (int k = 0; k < K; ++k) {
            S* at = sums + k * n + i;
            store<S>(at, load<S>(at, count) + a.v[k], count);
          }
        });
    }
  });
  pool.parallel_for(0, n, 256, [&](int64_t begin, int64_t end, int) {
    for (int k = 0; k < K; ++k) {
      if (outputs[k] == nullptr) continue;
      each<S>(end - begin, [&](int64_t offset, auto count) {
        const int64_t i = begin + offset;
        Vec<S> total{};
        for (int64_t c = 0; c < chunks; ++c) total += load<S>(partial + (c * K + k) * n + i, count);
        if (accumulate) total += load<S>(outputs[k] + i, count);
        store<S>(outputs[k] + i, total, count);
      });
    }
  });
}

}  // namespace quintet::kernels::cpu::QUINTET_ISA

// Choosing tokens, storing rows in a cache, and log-probabilities.
#pragma once

#include <cstddef>

#include "kernels/cpu/support/types.h"
#include "kernels/paged_rows.h"

namespace quintet::kernels::cpu {

// ids[t]: the token chosen from logits[t, 0 .. columns), or -1 when the largest logit is not finite. The
// random number of a row is that of (samples[t], positions[t] + 1).
template <class T>
void sample(const T* logits, int64_t tokens, int64_t columns, const SampleRule& rule, const int32_t* samples,
            const int32_t* positions, const History& history, int32_t* ids, std::byte* workspace,
            ThreadPool& pool);
int64_t sample_workspace_bytes(int64_t vocab, int threads);

// out[i] = x[rows[i]], rows of `bytes` bytes.
void take_rows(const std::byte* x, const int32_t* rows, int64_t count, int64_t bytes, std::byte* out);

// Stores row t, of `bytes` bytes and `stride` after the one before it, at its place in the cache; rows of no
// sequence are skipped.
void cache_append(const std::byte* rows, int64_t tokens, int64_t bytes, int64_t stride,
                  const PagedRows& pages, const int32_t* sequences, const int32_t* positions,
                  std::byte* cache, ThreadPool& pool);

// out[t] = label_logit[t] - max[t] - log(sum[t]); 0 where the label is negative.
template <class S>
void log_prob(const S* max, const S* sum, const S* label_logit, const int32_t* labels, int64_t tokens,
              S* out);

}  // namespace quintet::kernels::cpu

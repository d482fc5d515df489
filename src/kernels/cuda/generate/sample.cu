// Choosing tokens, storing rows in a cache, and log-probabilities.
#include "kernels/cuda/generate/generate.h"
#include "kernels/cuda/support/launch.cuh"
#include "kernels/cuda/support/philox.cuh"

namespace quintet::kernels::cuda {
namespace {

constexpr int kThreads = 1024, kWarps = kThreads / 32, kBins = 256;
constexpr unsigned kAll = 0xFFFFFFFFu;
constexpr float kUnit = 4294967296.f;  // of a probability, relative to the largest

// Keys in the order of floats.
__device__ __forceinline__ uint32_t key_of(float x) {
  const uint32_t bits = __float_as_uint(x);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// A row of logits, with the penalty applied to tokens that have occurred.
template <class T>
struct Row {
  const T* logits;
  const uint32_t* seen;  // shared: a bit per token; null: no penalty
  float penalty, most, inverse_temperature;

  __device__ float at(int i) const { return counted(i, static_cast<float>(load<1>(logits + i).v[0])); }
  __device__ float counted(int i, float x) const {
    if (seen != nullptr && (seen[i / 32] >> (i % 32) & 1)) x = x > 0 ? x / penalty : x * penalty;
    return x;
  }
  __device__ unsigned long long mass(float x) const {
    return static_cast<unsigned long long>(__expf((x - most) * inverse_temperature) * kUnit);
  }
};

__device__ unsigned long long block_sum(unsigned long long v, unsigned long long* shared) {
  for (int step = 16; step > 0; step /= 2) v += __shfl_xor_sync(kAll, v, step);
  __syncthreads();
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = v;
  __syncthreads();
  v = 0;
  for (int i = 0; i < kWarps; ++i) v += shared[i];
  return v;
}

// The largest key such that those at least as large (and at least `least`) weigh `target` or more; a token
// weighs 1, or its mass. Four passes, a byte of the key each.
template <class T, bool kMass>
__device__ uint32_t select(const Row<T>& row, int vocab, uint32_t least, unsigned long long target,
                           unsigned long long* bins) {
  uint32_t prefix = 0;
  __shared__ uint32_t chosen;
  __shared__ unsigned long long left;
  if (threadIdx.x == 0) left = target;
  for (int shift = 24; shift >= 0; shift -= 8) {
    for (int i = threadIdx.x; i < kBins; i += kThreads) bins[i] = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < vocab; i += kThreads) {
      const float x = row.at(i);
      const uint32_t key = key_of(x);
      if (key < least || (shift < 24 && key >> (shift + 8) != prefix)) continue;
      const unsigned long long w = kMass ? row.mass(x) : 1ull;
      if (w > 0) atomicAdd(bins + (key >> shift & 0xFF), w);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      int bin = kBins - 1;
      unsigned long long rest = left;
      while (bin > 0 && bins[bin] < rest) rest -= bins[bin--];
      chosen = static_cast<uint32_t>(bin);
      left = rest;
    }
    __syncthreads();
    prefix = prefix << 8 | chosen;
    __syncthreads();
  }
  return prefix;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    choose(const T* logits, int64_t columns, SampleRule rule, const int32_t* samples,
           const int32_t* positions, History history, int32_t* ids) {
  await_previous();
  extern __shared__ uint32_t seen[];
  __shared__ unsigned long long bins[kBins], sums[kWarps];
  __shared__ float best[kWarps];
  __shared__ int where[kWarps];
  __shared__ bool bad;
  const int t = blockIdx.x, thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  const int vocab = static_cast<int>(rule.vocab);
  Row<T> row{.logits = logits + t * columns,
             .seen = nullptr,
             .penalty = static_cast<float>(rule.repetition_penalty),
             .most = 0,
             .inverse_temperature = 0};
  if (thread == 0) bad = false;
  if (history.ids != nullptr) {
    for (int i = thread; i < (vocab + 31) / 32; i += kThreads) seen[i] = 0;
    __syncthreads();
    for (int p = thread; p <= positions[t]; p += kThreads) {
      const int64_t at = history.pages.row(history.sequences[t], p);
      const int32_t id = at < 0 ? -1 : history.ids[at];
      if (id >= 0 && id < vocab) atomicOr(seen + id / 32, 1u << (id % 32));
    }
    row.seen = seen;
  }
  __syncthreads();

  float most = -INFINITY;
  int first = vocab;
  const auto consider = [&](int i, float x) {
    if (isnan(x)) bad = true;
    if (x > most) most = x, first = i;
  };
  constexpr int V = kWide<T>;
  const int in_vectors = columns % V == 0 ? vocab / V * V : 0;
#pragma unroll 4
  for (int i = thread * V; i < in_vectors; i += kThreads * V) {
    const auto x = load<V>(row.logits + i);
#pragma unroll
    for (int j = 0; j < V; ++j) consider(i + j, row.counted(i + j, static_cast<float>(x.v[j])));
  }
  for (int i = in_vectors + thread; i < vocab; i += kThreads) consider(i, row.at(i));
  for (int step = 16; step > 0; step /= 2) {
    const float x = __shfl_xor_sync(kAll, most, step);
    const int i = __shfl_xor_sync(kAll, first, step);
    if (x > most || (x == most && i < first)) most = x, first = i;
  }
  if (lane == 0) best[warp] = most, where[warp] = first;
  __syncthreads();
  most = best[0], first = where[0];
  for (int w = 1; w < kWarps; ++w)
    if (best[w] > most || (best[w] == most && where[w] < first)) most = best[w], first = where[w];
  if (bad || isinf(most)) {
    if (thread == 0) ids[t] = -1;
    return;
  }
  if (rule.temperature == 0) {
    if (thread == 0) ids[t] = first;
    return;
  }
  row.most = most;
  row.inverse_temperature = static_cast<float>(1.0 / rule.temperature);
  uint32_t least = 0;
  if (rule.top_k > 0 && rule.top_k < vocab)
    least = select<T, false>(row, vocab, 0, static_cast<unsigned long long>(rule.top_k), bins);
  if (rule.top_p < 1) {
    unsigned long long all = 0;
    for (int i = thread; i < vocab; i += kThreads)
      if (const float x = row.at(i); key_of(x) >= least) all += row.mass(x);
    all = block_sum(all, sums);
    const auto target = static_cast<unsigned long long>(rule.top_p * static_cast<double>(all));
    least = max(least, select<T, true>(row, vocab, least, target > 0 ? target : 1, bins));
  }
  if (rule.min_p > 0)
    least = max(least, key_of(most + static_cast<float>(rule.temperature * log(rule.min_p))));

  // A warp sums a stretch of tokens; the one in which the number falls finds its token.
  const int stretch = (vocab + kWarps - 1) / kWarps, begin = warp * stretch,
            end = min(vocab, begin + stretch);
  unsigned long long mine = 0;
  for (int i = begin + lane; i < end; i += 32)
    if (const float x = row.at(i); key_of(x) >= least) mine += row.mass(x);
  for (int step = 16; step > 0; step /= 2) mine += __shfl_xor_sync(kAll, mine, step);
  __syncthreads();
  if (lane == 0) sums[warp] = mine;
  __syncthreads();
  unsigned long long all = 0, before = 0;
  for (int w = 0; w < kWarps; ++w) {
    before += w < warp ? sums[w] : 0;
    all += sums[w];
  }
  const uint64_t position = static_cast<uint64_t>(positions[t] + 1);
  const uint32_t word = philox(rule.key, static_cast<uint32_t>(position),
                               static_cast<uint32_t>(position >> 32), static_cast<uint32_t>(samples[t]), 0)
                            .w[0];
  const auto target =
      static_cast<unsigned long long>(static_cast<double>(word) * 0x1p-32 * static_cast<double>(all));
  if (all == 0 && thread == 0) ids[t] = first;
  if (target < before || target >= before + mine) return;
  for (int base = begin; base < end; base += 32) {
    const int i = base + lane;
    unsigned long long upto = 0;
    if (i < end)
      if (const float x = row.at(i); key_of(x) >= least) upto = row.mass(x);
    for (int step = 1; step < 32; step *= 2) {
      const unsigned long long other = __shfl_up_sync(kAll, upto, step);
      if (lane >= step) upto += other;
    }
    const unsigned hit = __ballot_sync(kAll, before + upto > target);
    if (hit != 0) {
      if (lane == __ffs(static_cast<int>(hit)) - 1) ids[t] = i;
      return;
    }
    before += __shfl_sync(kAll, upto, 31);
  }
}

struct Appends {
  AppendRows list[2];
};

// Units of 16 bytes, or of one byte if rows are not multiples of 16.
template <class Unit>
__global__ void append(Appends appends, int64_t tokens, PagedRows pages, const int32_t* sequences,
                       const int32_t* positions) {
  await_previous();
  const AppendRows& a = appends.list[blockIdx.y];
  const int64_t units = a.bytes / static_cast<int64_t>(sizeof(Unit));
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < tokens * units;
       i += int64_t{gridDim.x} * blockDim.x) {
    const int64_t t = i / units, j = i % units;
    const int64_t row = pages.row(sequences[t], positions[t]);
    if (row >= 0)
      reinterpret_cast<Unit*>(a.cache)[row * units + j] = reinterpret_cast<const Unit*>(a.rows)[i];
  }
}

template <class Unit>
__global__ void take(const Unit* x, const int32_t* rows, int64_t count, int64_t units, Unit* out) {
  await_previous();
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < count * units;
       i += int64_t{gridDim.x} * blockDim.x)
    out[i] = x[rows[i / units] * units + i % units];
}

template <class S>
__global__ void log_probs(const S* max, const S* sum, const S* label_logit, const int32_t* labels,
                          int64_t tokens, S* out) {
  await_previous();
  const int64_t t = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (t < tokens) out[t] = labels[t] < 0 ? S(0) : label_logit[t] - max[t] - log(sum[t]);
}

constexpr int kCopyThreads = 256;
unsigned blocks_for(int64_t items) {
  const int64_t blocks = (items + kCopyThreads - 1) / kCopyThreads;
  return static_cast<unsigned>(blocks < 4096 ? blocks : 4096);
}
bool in_vectors(int64_t bytes, const void* a, const void* b) {
  return bytes % 16 == 0 && reinterpret_cast<uintptr_t>(a) % 16 == 0 &&
         reinterpret_cast<uintptr_t>(b) % 16 == 0;
}

}  // namespace

template <class T>
void sample(const T* logits, int64_t tokens, int64_t columns, const SampleRule& rule, const int32_t* samples,
            const int32_t* positions, const History& history, int32_t* ids, Stream stream) {
  if (tokens == 0) return;
  if (!all_aligned16(logits)) fail("sample: logits must start at a multiple of 16 bytes");
  const size_t shared = history.ids == nullptr ? 0 : static_cast<size_t>((rule.vocab + 31) / 32 * 4);
  choose<T><<<static_cast<unsigned>(tokens), kThreads, shared, stream>>>(logits, columns, rule, samples,
                                                                         positions, history, ids);
  check_launch("sample");
}

void cache_append(const AppendRows* list, int count, int64_t tokens, const PagedRows& pages,
                  const int32_t* sequences, const int32_t* positions, Stream stream) {
  if (tokens == 0) return;
  Appends appends;
  bool vectors = true;
  int64_t most = 0;
  for (int i = 0; i < count; ++i) {
    appends.list[i] = list[i];
    vectors = vectors && in_vectors(list[i].bytes, list[i].rows, list[i].cache);
    most = list[i].bytes > most ? list[i].bytes : most;
  }
  const dim3 grid(blocks_for(tokens * most / (vectors ? 16 : 1)), static_cast<unsigned>(count));
  if (vectors)
    append<uint4><<<grid, kCopyThreads, 0, stream>>>(appends, tokens, pages, sequences, positions);
  else
    append<uint8_t><<<grid, kCopyThreads, 0, stream>>>(appends, tokens, pages, sequences, positions);
  check_launch("cache_append");
}

void take_rows(const std::byte* x, const int32_t* rows, int64_t count, int64_t bytes, std::byte* out,
               Stream stream) {
  if (count == 0) return;
  if (in_vectors(bytes, x, out))
    take<uint4><<<blocks_for(count * bytes / 16), kCopyThreads, 0, stream>>>(
        reinterpret_cast<const uint4*>(x), rows, count, bytes / 16, reinterpret_cast<uint4*>(out));
  else
    take<uint8_t><<<blocks_for(count * bytes), kCopyThreads, 0, stream>>>(
        reinterpret_cast<const uint8_t*>(x), rows, count, bytes, reinterpret_cast<uint8_t*>(out));
  check_launch("take_rows");
}

template <class S>
void log_prob(const S* max, const S* sum, const S* label_logit, const int32_t* labels, int64_t tokens, S* out,
              Stream stream) {
  if (tokens == 0) return;
  log_probs<S>
      <<<static_cast<unsigned>((tokens + kCopyThreads - 1) / kCopyThreads), kCopyThreads, 0, stream>>>(
          max, sum, label_logit, labels, tokens, out);
  check_launch("log_prob");
}

#define INSTANTIATE(T)                                                                                   \
  template void sample<T>(const T*, int64_t, int64_t, const SampleRule&, const int32_t*, const int32_t*, \
                          const History&, int32_t*, Stream);
INSTANTIATE(double)
INSTANTIATE(float)
INSTANTIATE(Bf16)
INSTANTIATE(F16)
#undef INSTANTIATE
template void log_prob<float>(const float*, const float*, const float*, const int32_t*, int64_t, float*,
                              Stream);
template void log_prob<double>(const double*, const double*, const double*, const int32_t*, int64_t, double*,
                               Stream);

}  // namespace quintet::kernels::cuda

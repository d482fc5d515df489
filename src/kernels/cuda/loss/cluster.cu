#include <map>
#include <mutex>

#include "kernels/cuda/loss/loss.cuh"
#include "kernels/cuda/support/cluster.cuh"
#include "kernels/cuda/support/l2_policy.cuh"

namespace quintet::kernels::cuda {
namespace {

// The blocks of a cluster share a row; each keeps its part in shared memory. Parts are small enough for
// several blocks per multiprocessor, which are at different rows: while one sums exponentials, another waits
// for memory or writes. A cluster has one row: multiprocessors are not equally fast, and persistent clusters,
// which could prefetch the next row while they write, end less evenly (up to 2 % slower).
inline constexpr int kMaxCluster = 8;  // supported by every GPU with clusters
inline constexpr int64_t kMinRowBytes = 24 << 10;
// Five or six blocks per multiprocessor; three where a row is too long for eight such parts.
inline constexpr int kDefaultThreads = 192, kLongThreads = 384;
inline constexpr int64_t kDefaultPartBytes = 40 << 10, kLongPartBytes = 72 << 10;
[[maybe_unused]] inline constexpr int kCopies = 4;  // groups of 16-byte vectors of a row, awaited one by one

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
template <class T>
__device__ __forceinline__ Pack<T, kWide<T>> shared_pack(uint32_t from) {
  uint4 raw;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(raw.x), "=r"(raw.y), "=r"(raw.z), "=r"(raw.w)
               : "r"(from)
               : "memory");
  return {raw};
}
// Waits for all groups except the last `left`.
__device__ __forceinline__ void await_all_but(int left) {
  if (left >= 3)
    await_copies<3>();
  else if (left == 2)
    await_copies<2>();
  else if (left == 1)
    await_copies<1>();
  else
    await_copies<0>();
}
static_assert(kCopies == 4);
#endif

template <class T, int kThreads>
__global__ void __launch_bounds__(kThreads, 1152 / kThreads) cluster_kernel(Loss<T> a, int part) {
  await_previous();
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  using S = Stat<T>;
  constexpr int V = kWide<T>, kWarps = kThreads / 32;
  extern __shared__ __align__(16) unsigned char memory[];
  __shared__ alignas(16) Running<S> sums[kMaxCluster * kWarps];  // per warp of the cluster
  __shared__ uint64_t barrier;
  const int rank = cluster_rank(), size = cluster_size();
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  // Vectors of this block, and those of them that hold valid columns; the last of these may include padding.
  const int begin = rank * part, packs = max(0, min(part, static_cast<int>(a.columns / V) - begin));
  const int valid = static_cast<int>(a.valid), partial = valid % V != 0 ? valid / V - begin : -1;
  const int readable = max(0, min(packs, (valid + V - 1) / V - begin));
  const int group = (packs + kThreads * kCopies - 1) / (kThreads * kCopies) * kThreads;
  const S seed = static_cast<S>(*a.seed);
  uint32_t kept;  // this thread's first vector; a copy that no loop recomputes
  asm volatile("mov.u32 %0, %1;" : "=r"(kept) : "r"(shared_address(memory) + threadIdx.x * 16));
  constexpr uint32_t kStepBytes = kThreads * 16;
  const int64_t r = blockIdx.x / static_cast<unsigned>(size);
  T* const x = a.logits + r * a.columns + (static_cast<int64_t>(begin) + thread) * V;
  // Calls f(vector, its index, its index in x) for this thread's readable vectors of a group.
  const auto each_pack = [&](int g, auto f) {
    const int first = g * group + thread, end = min((g + 1) * group, readable);
    uint32_t place = kept + static_cast<uint32_t>(g * group) * 16;
    T* at = x + static_cast<int64_t>(g * group) * V;
#pragma unroll 1
    for (int p = first; p < end; p += kThreads, place += kStepBytes, at += kThreads * V) f(p, place, at);
  };
  // A row is written where it was read: it stays in the L2 cache in between (2 to 3 % of the time).
  const uint64_t keep = l2_keep(), as_usual = l2_as_usual();
  const auto zero_from = [&](int first) {
    for (int p = first; p + thread < packs; p += kThreads)
      store<V>(x + static_cast<int64_t>(p) * V, Vals<S, V>{}, as_usual);
  };
  const auto start_copies = [&](int g) {
    each_pack(g, [&](int, uint32_t place, const T* from) { copy_async(place, from, keep); });
    end_copies();
  };
  const int32_t label = a.labels[r];
  if (size > 1) {
    if (thread == 0) make_barrier(&barrier, 1);
    __syncthreads();  // compute-sanitizer sees it as a write by all threads, which would race with the
                      // copies
  }
  start_copies(0);  // before the label is waited for
  if (label < 0) {
    if (rank == 0 && thread == 0) a.losses[r] = 0;
    await_copies<0>();
    return zero_from(0);
  }
#pragma unroll 1
  for (int g = 1; g < kCopies; ++g) start_copies(g);
  if (size > 1) start_cluster();
  Summing<T> summing;
#pragma unroll 1
  for (int g = 0; g < kCopies; ++g) {
    await_all_but(kCopies - 1 - g);
    each_pack(g, [&](int p, uint32_t place, const T*) {
      auto v = values<T, V>(shared_pack<T>(place));
      if (p == partial) mask_padding<V>(v, (begin + p) * V, valid);
      summing.add(v);
    });
  }
  // Merges the sums of the warps into those of the row.
  Running<S> run = warp_merge<T>(summing.running());
  if (size == 1) {
    if (lane == 0) sums[warp] = run;
    __syncthreads();
  } else {
    if (thread == 0) announce(&barrier, static_cast<uint32_t>(size * kWarps * sizeof(run)));
    if (lane < size) send(lane, sums + rank * kWarps + warp, {run.max, run.sum}, &barrier);
    await_turn<true>(&barrier, 0);
  }
  run = {lowest<S>(), S(0)};
#pragma unroll 1
  for (int i = lane; i < size * kWarps; i += 32) run = merge<T>(run, sums[i]);
  run = warp_merge<T>(run);

  const S factor = seed / run.sum;
  const int column = local_column(label, a.vocab_begin, a.valid),
            target_pack = column >= 0 ? column / V - begin : -1;
  // The thread that has the label's logit writes the loss; without one, the first thread.
  bool writes_loss = column < 0 && rank == 0 && thread == 0;
  S logit = 0;
#pragma unroll 1
  for (int g = 0; g < kCopies; ++g)
    each_pack(g, [&](int p, uint32_t place, T* to) {
      auto v = values<T, V>(shared_pack<T>(place));
#pragma unroll
      for (int k = 0; k < V; ++k) v.v[k] = Math<T>::exp_less(v.v[k], run.max) * factor;
      if (p == target_pack || p == partial) {
        finish_dlogits<T, V>(v, (begin + p) * V, valid, column, seed);
        const auto logits = values<T, V>(shared_pack<T>(place));
#pragma unroll
        for (int k = 0; k < V; ++k)
          if ((begin + p) * V + k == column) writes_loss = true, logit = logits.v[k];
      }
      store<V>(to, v, as_usual);
    });
  if (writes_loss) a.losses[r] = loss_of(run.max, run.sum, logit);
  zero_from(readable);
#endif
}

struct Clusters {
  cudaLaunchAttribute attribute{};
  cudaLaunchConfig_t config{};
  Clusters(int size, int threads, int64_t shared, Stream stream) {
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {static_cast<unsigned>(size), 1, 1};
    config.blockDim = static_cast<unsigned>(threads);
    config.gridDim = static_cast<unsigned>(size);
    config.dynamicSmemBytes = static_cast<size_t>(shared);
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = 1;
  }
  Clusters(const Clusters&) = delete;
};

// Whether the GPU has clusters and space for these, and the code was built for such GPUs.
template <class T, int kThreads>
bool can_run(int size, int64_t shared) {
  static std::mutex mutex;
  static std::map<std::tuple<int, int, int64_t>, bool> known;
  int device = 0, major = 0, most = 0;
  check(cudaGetDevice(&device), "cross_entropy");
  const std::lock_guard lock(mutex);
  if (const auto at = known.find({device, size, shared}); at != known.end()) return at->second;
  const auto kernel = cluster_kernel<T, kThreads>;
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "cross_entropy");
  bool can = major >= 9 && architecture_of(kernel, "cross_entropy") >= 90;
  if (can) {
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kLongPartBytes),
          "cross_entropy");
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                               cudaSharedmemCarveoutMaxShared),
          "cross_entropy");
    Clusters clusters(size, kThreads, shared, nullptr);
    can = cudaOccupancyMaxActiveClusters(&most, kernel, &clusters.config) == cudaSuccess && most > 0;
    cudaGetLastError();  // a refusal is not an error
  }
  known[{device, size, shared}] = can;
  return can;
}

template <class T, int kThreads>
bool launch(const Loss<T>& a, int64_t rows, int64_t packs, int size, Stream stream) {
  const int64_t part = divide_up(divide_up(packs, size), 8) * 8;  // whole lines of 128 bytes
  if (!can_run<T, kThreads>(size, part * 16)) return false;
  Clusters clusters(size, kThreads, part * 16, stream);
  clusters.config.gridDim = static_cast<unsigned>(rows * size);
  check(cudaLaunchKernelEx(&clusters.config, cluster_kernel<T, kThreads>, a, static_cast<int>(part)),
        "cross_entropy");
  return true;
}

}  // namespace

template <class T>
bool cross_entropy_in_clusters(const Loss<T>& a, int64_t rows, Stream stream) {
  const int64_t packs = a.columns / kWide<T>, bytes = packs * 16, parts = divide_up(bytes, kDefaultPartBytes);
  if (!a.write_dlogits || bytes < kMinRowBytes || bytes > kMaxCluster * kLongPartBytes) return false;
  return parts <= kMaxCluster ? launch<T, kDefaultThreads>(a, rows, packs, static_cast<int>(parts), stream)
                              : launch<T, kLongThreads>(a, rows, packs, kMaxCluster, stream);
}

// Sums of doubles exceed what a block sends at once; they use the other kernel.
template <>
bool cross_entropy_in_clusters(const Loss<double>&, int64_t, Stream) {
  return false;
}
template bool cross_entropy_in_clusters<float>(const Loss<float>&, int64_t, Stream);
template bool cross_entropy_in_clusters<Bf16>(const Loss<Bf16>&, int64_t, Stream);
template bool cross_entropy_in_clusters<F16>(const Loss<F16>&, int64_t, Stream);

}  // namespace quintet::kernels::cuda

#include <map>
#include <mutex>

#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/loss.cuh"

namespace quintet::kernels::cuda {
namespace {

// The blocks of a cluster share a row; each keeps its part in shared memory. Parts are small enough for three
// blocks on a multiprocessor, which are at different rows: while one sums exponentials, another waits for
// memory or writes. A thread reads and writes the same packs throughout, so that it can fetch a pack of the
// next row into the place of one that it has just written out.
inline constexpr int kThreads = 384, kBlocks = 3;
[[maybe_unused]] inline constexpr int kWarps = kThreads / 32;
inline constexpr int kMostCluster = 8;  // what every card with clusters can do
inline constexpr int64_t kPartBytes = 72 << 10, kLeastRowBytes = 24 << 10;
// Multiprocessors are not equally fast, so rows are handed out in small portions as clusters end. Starting a
// cluster takes a while, though, and a single block little.
inline constexpr int kRowsOfCluster = 2, kRowsOfBlock = 1;
[[maybe_unused]] inline constexpr int kCopies = 4;  // groups of packs of a row that are waited for one by one

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
// All groups but the last `left` are there.
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

template <class T>
__global__ void __launch_bounds__(kThreads, kBlocks)
    cluster_kernel(Loss<T> a, int64_t rows, int rows_each, int part) {
  await_previous();
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  using S = Stat<T>;
  constexpr int V = kWide<T>;
  extern __shared__ __align__(16) unsigned char memory[];
  // Sums of every warp of the cluster, two places in turn: whoever sends those of the next row but one has
  // those of the next from all warps here, which have read this row's by then.
  __shared__ alignas(16) Running<S> sums[2][kMostCluster * kWarps];
  __shared__ uint64_t barriers[2];
  const int rank = cluster_rank(), size = cluster_size();
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  // Packs of this block, and those of them that hold valid columns; of these one may hold padding too.
  const int begin = rank * part, packs = max(0, min(part, static_cast<int>(a.columns / V) - begin));
  const int valid = static_cast<int>(a.valid), partial = valid % V != 0 ? valid / V - begin : -1;
  const int readable = max(0, min(packs, (valid + V - 1) / V - begin));
  const int group = (packs + kThreads * kCopies - 1) / (kThreads * kCopies) * kThreads;
  const S seed = static_cast<S>(*a.seed);
  uint32_t kept;  // this thread's first pack; a copy that is not formed anew in every loop
  asm volatile("mov.u32 %0, %1;" : "=r"(kept) : "r"(shared_address(memory) + threadIdx.x * 16));
  constexpr uint32_t kStepBytes = kThreads * 16;
  const auto row_at = [&](int64_t r) {
    return a.logits + r * a.columns + (static_cast<int64_t>(begin) + thread) * V;
  };
  // Calls f(pack, its place, what x is there) for this thread's packs of a group that are below `most`.
  const auto each_pack = [&](int g, int most, auto* x, auto f) {
    const int first = g * group + thread, end = min((g + 1) * group, most);
    uint32_t place = kept + static_cast<uint32_t>(g * group) * 16;
    x += static_cast<int64_t>(g * group) * V;
#pragma unroll 1
    for (int p = first; p < end; p += kThreads, place += kStepBytes, x += kThreads * V) f(p, place, x);
  };
  const auto fetch_row = [&](const T* x) {
#pragma unroll 1
    for (int g = 0; g < kCopies; ++g) {
      each_pack(g, readable, x, [](int, uint32_t place, const T* from) { copy_async<16>(place, from); });
      end_copies();
    }
  };
  const auto zero_from = [&](int first, T* x) {
    for (int p = first; p + thread < packs; p += kThreads)
      store<V>(x + static_cast<int64_t>(p) * V, Vals<S, V>{});
  };
  if (size > 1) {
    if (thread == 0) {
      make_barrier(&barriers[0], 1);
      make_barrier(&barriers[1], 1);
    }
    __syncthreads();  // compute-sanitizer takes them for writes of all threads, which would race with the
                      // copies
  }
  int64_t r = static_cast<int64_t>(blockIdx.x / static_cast<unsigned>(size)) * rows_each;
  const int64_t end = min(rows, r + rows_each);
  int32_t label = a.labels[r];
  if (label >= 0) fetch_row(row_at(r));
  if (size > 1) start_cluster();
  // From the sums of this warp to those of the row.
  const auto sum_of_row = [&](Running<S> run, uint32_t turn) {
    Running<S>* const all = sums[turn & 1];
    uint64_t* const barrier = &barriers[turn & 1];
    if (size == 1) {
      if (lane == 0) all[warp] = run;
      __syncthreads();
    } else {
      if (thread == 0) announce(barrier, static_cast<uint32_t>(size * kWarps * sizeof(run)));
      if (lane < size) send(lane, all + rank * kWarps + warp, {run.max, run.sum}, barrier);
      await_turn<true>(barrier, turn >> 1 & 1);
    }
    run = {lowest<S>(), S(0)};
#pragma unroll 1
    for (int i = lane; i < size * kWarps; i += 32) run = merge<T>(run, all[i]);
    return warp_merge<T>(run);
  };
  for (uint32_t turn = 0; r < end; ++r) {
    const int32_t next = r + 1 < end ? a.labels[r + 1] : -1;
    T* const x = row_at(r);
    if (label < 0) {
      if (rank == 0 && thread == 0) a.losses[r] = 0;
      zero_from(0, x);
      if (next >= 0) fetch_row(x + a.columns);
      label = next;
      continue;
    }
    Summing<T> summing;
#pragma unroll 1
    for (int g = 0; g < kCopies; ++g) {
      await_all_but(kCopies - 1 - g);
      each_pack(g, readable, x, [&](int p, uint32_t place, const T*) {
        auto v = values<T, V>(shared_pack<T>(place));
        if (p == partial) mask_padding<V>(v, (begin + p) * V, valid);
        summing.add(v);
      });
    }
    const Running<S> run = sum_of_row(warp_merge<T>(summing.running()), turn++);
    const S factor = seed / run.sum;
    const int column = local_column(label, a.vocab_begin, a.valid),
              target_pack = column >= 0 ? column / V - begin : -1;
    // Whoever has the label's logit writes the loss; without one, the first thread.
    bool writes_loss = column < 0 && rank == 0 && thread == 0;
    S logit = 0;
#pragma unroll 1
    for (int g = 0; g < kCopies; ++g) {
      each_pack(g, readable, x, [&](int p, uint32_t place, T* to) {
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
        store<V>(to, v);
        if (next >= 0) copy_async<16>(place, to + a.columns);
      });
      if (next >= 0) end_copies();
    }
    if (writes_loss) a.losses[r] = loss_of(run.max, run.sum, logit);
    zero_from(readable, x);
    label = next;
  }
#endif
}

struct Clusters {
  cudaLaunchAttribute attribute{};
  cudaLaunchConfig_t config{};
  Clusters(int size, int64_t shared, Stream stream) {
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {static_cast<unsigned>(size), 1, 1};
    config.blockDim = kThreads;
    config.gridDim = static_cast<unsigned>(size);
    config.dynamicSmemBytes = static_cast<size_t>(shared);
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = 1;
  }
  Clusters(const Clusters&) = delete;
};

// Whether the card has clusters and room for such ones, and the code is for such cards.
template <class T>
bool can_run(int size, int64_t shared) {
  static std::mutex mutex;
  static std::map<std::tuple<int, int, int64_t>, bool> known;
  int device = 0, major = 0, most = 0;
  check(cudaGetDevice(&device), "cross_entropy");
  const std::lock_guard lock(mutex);
  if (const auto at = known.find({device, size, shared}); at != known.end()) return at->second;
  const auto kernel = cluster_kernel<T>;
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "cross_entropy");
  bool can = major >= 9 && architecture_of(kernel, "cross_entropy") >= 90;
  if (can) {
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kPartBytes),
          "cross_entropy");
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                               cudaSharedmemCarveoutMaxShared),
          "cross_entropy");
    Clusters clusters(size, shared, nullptr);
    can = cudaOccupancyMaxActiveClusters(&most, kernel, &clusters.config) == cudaSuccess && most > 0;
    cudaGetLastError();  // a refusal is an answer
  }
  known[{device, size, shared}] = can;
  return can;
}

}  // namespace

template <class T>
bool cross_entropy_in_clusters(const Loss<T>& a, int64_t rows, Stream stream) {
  constexpr int V = kWide<T>;
  const int64_t packs = a.columns / V, bytes = packs * 16;
  if (!a.write_dlogits || bytes < kLeastRowBytes || bytes > kMostCluster * kPartBytes) return false;
  int size = 1;
  while (divide_up(packs, size) * 16 > kPartBytes) size *= 2;
  const int64_t part = divide_up(divide_up(packs, size), 8) * 8;  // whole lines of 128 bytes
  if (!can_run<T>(size, part * 16)) return false;
  const int each = size > 1 ? kRowsOfCluster : kRowsOfBlock;
  Clusters clusters(size, part * 16, stream);
  clusters.config.gridDim = static_cast<unsigned>(divide_up(rows, each) * size);
  check(cudaLaunchKernelEx(&clusters.config, cluster_kernel<T>, a, rows, each, static_cast<int>(part)),
        "cross_entropy");
  return true;
}

// Sums of doubles are more than blocks send at once; they go the other way.
template <>
bool cross_entropy_in_clusters(const Loss<double>&, int64_t, Stream) {
  return false;
}
template bool cross_entropy_in_clusters<float>(const Loss<float>&, int64_t, Stream);
template bool cross_entropy_in_clusters<Bf16>(const Loss<Bf16>&, int64_t, Stream);
template bool cross_entropy_in_clusters<F16>(const Loss<F16>&, int64_t, Stream);

}  // namespace quintet::kernels::cuda

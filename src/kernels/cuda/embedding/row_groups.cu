#include "kernels/cuda/embedding/row_groups.cuh"
#include "kernels/cuda/support/launch.cuh"
#include "kernels/cuda/support/thread_group.cuh"

// One launch without communication between blocks: every block reads all ids and stores the tokens of its
// bucket. Tokens of lower buckets precede them, and are counted in the same pass. Warps have runs of tokens:
// a token's place is after those of its row in the runs of earlier warps and those found earlier in its own.
namespace quintet::kernels::cuda {
namespace {

constexpr int kThreads = 512, kWarps = kThreads / 32;
constexpr int kRows = kEmbeddingBucketRows;
static_assert(kRows == 2 * kThreads, "a thread has two rows");
constexpr int kStep = 16;               // ids read at once by a lane
constexpr uint32_t kHalf = 32 * kStep;  // tokens read at once by a warp
constexpr uint32_t kChunk = 2 * kHalf;  // tokens covered by one word of bits per lane
constexpr uint32_t kKept = 128;         // tokens of the bucket kept by a warp
constexpr unsigned kAllLanes = 0xffffffffu;

struct Grouping {
  ShardIds in;
  RowGroups to;
  unsigned rows;  // per bucket
  uint32_t* counters;
  int64_t counter_count;
};

// Rows are those of the block's bucket.
struct Bucket {
  uint32_t totals[kRows], begins[kRows];
  uint2 kept[kWarps][kKept];  // token and row, as the warp found them
  uint16_t filled[kRows];     // rows with tokens, in any order
  uint32_t filled_count;
  uint4 lower[kWarps / 4], sums[kWarps / 4];  // per warp: tokens of lower buckets, tokens of its rows
};

struct Run {
  uint32_t first, last;
};

__device__ __forceinline__ unsigned lane_of() { return threadIdx.x % 32; }
__device__ __forceinline__ unsigned warp_of() { return threadIdx.x / 32; }
__device__ __forceinline__ unsigned lower_lanes() { return (1u << lane_of()) - 1; }
__device__ __forceinline__ uint32_t count_of(unsigned mask) { return static_cast<uint32_t>(__popc(mask)); }

// Inclusive prefix sum of v over the lanes.
__device__ __forceinline__ uint32_t warp_scan(uint32_t v) {
#pragma unroll
  for (unsigned d = 1; d < 32; d *= 2) {
    const uint32_t left = __shfl_up_sync(kAllLanes, v, d);
    if (lane_of() >= d) v += left;
  }
  return v;
}

__device__ __forceinline__ Run run_of_warp(uint32_t tokens) {
  const uint32_t length = (tokens + kThreads - 1) / kThreads * 32, first = min(warp_of() * length, tokens);
  return {first, min(first + length, tokens)};
}

// The row within the shard, which has vocab_local rows. Ids below the shard, negative ones too, wrap to rows
// past it.
__device__ __forceinline__ uint32_t row_of(const ShardIds& in, int32_t id) {
  return static_cast<uint32_t>(id) - in.vocab_begin;
}
// The token for a bit of this lane, in the chunk at `from`.
__device__ __forceinline__ uint32_t token_of(uint32_t from, uint32_t bits) {
  return from + static_cast<uint32_t>(__ffs(static_cast<int>(bits)) - 1) * 32 + lane_of();
}
__device__ __forceinline__ uint32_t bucket_row(const Grouping& a, uint32_t token) {
  return row_of(a.in, a.in.ids[token]) >> a.to.bits;
}

// id[u] is that of token from + u * 32 + lane, or -1 past the run.
__device__ __forceinline__ void read_ids(const ShardIds& in, uint32_t from, Run run, int32_t (&id)[kStep]) {
  const auto left = static_cast<int>(run.last - from), lane = static_cast<int>(lane_of());
  const int32_t* const at = in.ids + from + lane;
  if (left >= static_cast<int>(kHalf)) {
#pragma unroll
    for (int u = 0; u < kStep; ++u) id[u] = at[u * 32];
  } else {
#pragma unroll
    for (int u = 0; u < kStep; ++u) id[u] = u * 32 < left - lane ? at[u * 32] : -1;
  }
}

// Sets bit kFirstBit + u where id[u] is in this block's bucket, and counts the ids of lower buckets.
template <int kFirstBit>
__device__ __forceinline__ void mark_own(const Grouping& a, const int32_t (&id)[kStep], uint32_t& bits,
                                         uint32_t& lower) {
#pragma unroll
  for (int u = 0; u < kStep; ++u) {
    const uint32_t row = row_of(a.in, id[u]), bucket = a.to.bucket_of(row);
    const bool inside = row < a.in.vocab_local;
    lower += inside && bucket < blockIdx.x;
    if (inside && bucket == blockIdx.x) bits += 1u << (kFirstBit + u);
  }
}

__device__ __forceinline__ void clear(const Grouping& a, uint32_t* counts, Bucket& b) {
  auto* const wide = reinterpret_cast<uint4*>(counts);
#pragma unroll 4
  for (unsigned i = threadIdx.x; i < kWarps / 4 * a.rows; i += kThreads) wide[i] = make_uint4(0, 0, 0, 0);
  b.totals[threadIdx.x] = b.totals[threadIdx.x + kThreads] = 0;
  if (threadIdx.x == 0) b.filled_count = 0;
#pragma unroll 1
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < a.counter_count;
       i += int64_t{gridDim.x} * kThreads)
    a.counters[i] = 0;
}

struct Found {
  uint32_t lower;  // tokens of lower buckets seen by this lane
  uint32_t mine;   // tokens of this bucket in the warp's run
};

// Counts the tokens of each row in the warp's run and keeps the first kKept of them. `even` and `odd` are the
// ids of the first chunk's halves; those of the next chunk are prefetched while a chunk is searched.
__device__ __forceinline__ Found search(const Grouping& a, Run run, int32_t (&even)[kStep],
                                        int32_t (&odd)[kStep], uint32_t* counts, Bucket& b) {
  Found found{};
#pragma unroll 1
  for (uint32_t from = run.first; from < run.last; from += kChunk) {
    const uint32_t next = from + kChunk;
    uint32_t bits = 0;
    mark_own<0>(a, even, bits, found.lower);
    if (next < run.last) read_ids(a.in, next, run, even);
    mark_own<kStep>(a, odd, bits, found.lower);
    if (next < run.last) read_ids(a.in, next + kHalf, run, odd);
    const uint32_t count = count_of(bits), upto = warp_scan(count);
    uint32_t i = found.mine + upto - count;
    found.mine += __shfl_sync(kAllLanes, upto, 31);
#pragma unroll 1
    for (; bits != 0; bits &= bits - 1, ++i) {
      const uint32_t token = token_of(from, bits), row = bucket_row(a, token);
      if (i < kKept) b.kept[warp_of()][i] = make_uint2(token, row);
      atomicAdd(counts + row, 1u);
      atomicAdd(b.totals + row, 1u);
    }
    __syncwarp();
  }
  return found;
}

// Lists the rows that have tokens, and marks them for the blocks that zero the others. total[h] is that of
// row thread + h * kThreads.
__device__ __forceinline__ void list_filled(const Grouping& a, const uint32_t (&total)[2], Bucket& b) {
#pragma unroll
  for (unsigned h = 0; h < 2; ++h) {
    const unsigned some = __ballot_sync(kAllLanes, total[h] > 0);
    unsigned at = 0;
    if (lane_of() == 0) {
      a.to.present[blockIdx.x * (kRows / 32) + h * kWarps + warp_of()] = some;
      if (some != 0) at = atomicAdd(&b.filled_count, count_of(some));
    }
    at = __shfl_sync(kAllLanes, at, 0);
    if (total[h] > 0)
      b.filled[at + count_of(some & lower_lanes())] = static_cast<uint16_t>(threadIdx.x + h * kThreads);
  }
}

// Tokens before the end of this thread's two rows. `own` counts this warp's rows up to this thread's.
__device__ __forceinline__ uint32_t tokens_upto(uint32_t own, const Bucket& b) {
  const unsigned warp = warp_of();
#pragma unroll
  for (unsigned w = 0; w < kWarps; w += 4) {
    const uint4 lower = b.lower[w / 4], sums = b.sums[w / 4];
    own += lower.x + lower.y + lower.z + lower.w;
    own += (w < warp ? sums.x : 0) + (w + 1 < warp ? sums.y : 0) + (w + 2 < warp ? sums.z : 0) +
           (w + 3 < warp ? sums.w : 0);
  }
  return own;
}

// Turns the counts [warp, row] into the place of the warp's next token of the row.
__device__ __forceinline__ void counts_to_places(unsigned rows, uint32_t* counts, const Bucket& b) {
#pragma unroll 1
  for (unsigned i = threadIdx.x; i < b.filled_count; i += kThreads) {
    const unsigned row = b.filled[i];
    uint32_t place = b.begins[row], found[kWarps];
#pragma unroll
    for (int w = 0; w < kWarps; ++w) found[w] = counts[w * rows + row];
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      counts[w * rows + row] = place;
      place += found[w];
    }
  }
}

// Writes up to 32 tokens, one per lane that has `mine`; those of one row in lane order. Called by all
// lanes.
__device__ __forceinline__ void write_tokens(const Grouping& a, bool mine, uint32_t token, uint32_t row,
                                             uint32_t* places, const Bucket& b) {
  const unsigned found = __ballot_sync(kAllLanes, mine);
  if (mine) {
    const unsigned same = __match_any_sync(found, row), before = same & lower_lanes();
    const uint32_t place = places[row], begin = b.begins[row];
    a.to.by_row[place + count_of(before)] = {token, row << a.to.bits | blockIdx.x, begin,
                                             begin + b.totals[row]};
    __syncwarp(found);
    if (before == 0) places[row] = place + count_of(same);
  }
  __syncwarp();
}

__device__ __forceinline__ void write_kept(const Grouping& a, uint32_t count, uint32_t* places,
                                           const Bucket& b) {
#pragma unroll 1
  for (uint32_t i = lane_of(); i - lane_of() < count; i += 32) {
    const bool mine = i < count;
    const uint2 kept = mine ? b.kept[warp_of()][i] : make_uint2(0, 0);
    write_tokens(a, mine, kept.x, kept.y, places, b);
  }
}

// For a run with more tokens than were kept.
__device__ __forceinline__ void write_found_again(const Grouping& a, Run run, uint32_t* places,
                                                  const Bucket& b) {
#pragma unroll 1
  for (uint32_t from = run.first; from < run.last; from += kChunk) {
    int32_t even[kStep], odd[kStep];
    read_ids(a.in, from, run, even);
    read_ids(a.in, from + kHalf, run, odd);
    uint32_t bits = 0, lower = 0;
    mark_own<0>(a, even, bits, lower);
    mark_own<kStep>(a, odd, bits, lower);
#pragma unroll 1
    for (; __any_sync(kAllLanes, bits != 0); bits &= bits - 1) {
      const bool mine = bits != 0;
      const uint32_t token = mine ? token_of(from, bits) : 0;
      write_tokens(a, mine, token, mine ? bucket_row(a, token) : 0, places, b);
    }
  }
}

__global__ void __launch_bounds__(kThreads, 2) group_kernel(Grouping a) {
  await_previous();
  extern __shared__ uint4 dynamic[];
  __shared__ Bucket b;
  auto* const counts = reinterpret_cast<uint32_t*>(dynamic);  // [warp, row]
  uint32_t* const own = counts + warp_of() * a.rows;
  const Run run = run_of_warp(a.in.tokens);
  int32_t even[kStep], odd[kStep];
  read_ids(a.in, run.first, run, even);
  read_ids(a.in, run.first + kHalf, run, odd);
  clear(a, counts, b);
  __syncthreads();
  const Found found = search(a, run, even, odd, own, b);
  const uint32_t lower = warp_fold(found.lower, Plus{});
  if (lane_of() == 0) reinterpret_cast<uint32_t*>(b.lower)[warp_of()] = lower;
  __syncthreads();
  const uint32_t total[2] = {b.totals[threadIdx.x], b.totals[threadIdx.x + kThreads]};
  list_filled(a, total, b);
  const uint32_t in_warp = warp_scan(total[0] + total[1]);
  if (lane_of() == 31) reinterpret_cast<uint32_t*>(b.sums)[warp_of()] = in_warp;
  __syncthreads();
  const uint32_t end = tokens_upto(in_warp, b);
  b.begins[threadIdx.x] = end - total[0] - total[1];
  b.begins[threadIdx.x + kThreads] = end - total[1];
  if (threadIdx.x == kThreads - 1 && blockIdx.x == gridDim.x - 1) *a.to.used = end;
  __syncthreads();
  counts_to_places(a.rows, counts, b);
  __syncthreads();
  if (found.mine <= kKept)
    write_kept(a, found.mine, own, b);
  else
    write_found_again(a, run, own, b);
}

}  // namespace

void group_by_row(const ShardIds& in, const RowGroups& to, uint32_t* counters, int64_t counter_count,
                  Stream stream) {
  constexpr auto kWordBytes = static_cast<int64_t>(sizeof(uint32_t));
  const int64_t rows = divide_up(in.vocab_local, int64_t{1} << to.bits);
  check(cudaFuncSetAttribute(group_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(kWarps * kRows * kWordBytes)),
        "group_by_row");
  group_kernel<<<1u << to.bits, kThreads, static_cast<size_t>(kWarps * rows * kWordBytes), stream>>>(
      {in, to, static_cast<unsigned>(rows), counters, counter_count});
  check_launch("group_by_row");
}

}  // namespace quintet::kernels::cuda

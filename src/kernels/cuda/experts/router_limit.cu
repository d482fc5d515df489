// The pairs of a group are distributed to columns by their expert, in order. A block has one column, and
// processes its experts one by one: a radix search finds the last key that is kept, digit by digit, and how
// many of the pairs with that key.
#include "kernels/cuda/experts/router_limit.h"
#include "kernels/cuda/reduce/columns.cuh"
#include "kernels/cuda/support/launch.cuh"
#include "kernels/cuda/support/philox.cuh"
#include "kernels/cuda/support/row_order.cuh"

namespace quintet::kernels::cuda {
namespace {

struct Deal {
  struct Item {
    int column;
    uint32_t place;
    int32_t expert;
  };
  WholeRows rows;
  int64_t k, group_pairs;
  const int32_t* chosen;
  LimitPair* pairs;
  LimitColumn* ends;
  int32_t* kept;

  __device__ __forceinline__ int columns() const { return kLimitColumns; }
  // Index of a pair, counted over all groups by (sequence, position, choice).
  __device__ __forceinline__ int64_t place(int64_t index) const {
    if (rows.ranks == 1) return index;
    const int64_t token = index / k;
    return rows.row(token / rows.seq_len, token % rows.seq_len) * k + index % k;
  }
  __device__ __forceinline__ Item read(uint32_t i) const {
    const int64_t at = place(blockIdx.z * group_pairs + i);
    const int32_t expert = chosen[at];
    return {expert < 0 ? -1 : expert % kLimitColumns, static_cast<uint32_t>(at), expert};
  }
  __device__ __forceinline__ void put(const Item& item, uint32_t start, uint32_t rank) const {
    pairs[blockIdx.z * group_pairs + start + rank] = {item.place, static_cast<uint32_t>(item.expert)};
  }
  __device__ __forceinline__ void skip(const Item& item) const { kept[item.place] = item.expert; }
  __device__ __forceinline__ void finish(const uint32_t* starts, const uint32_t* totals) const {
    if (blockIdx.x == 0 && threadIdx.x < kLimitColumns)
      ends[blockIdx.z * kLimitColumns + threadIdx.x] = {starts[threadIdx.x], totals[threadIdx.x]};
  }
};

// As on the CPU: decreases as the weight increases and orders every bit pattern; rounded to kTieBits first.
__device__ __forceinline__ uint64_t descending_key(double weight, int tie_bits) {
  uint64_t bits = static_cast<uint64_t>(__double_as_longlong(weight + 0.0));
  const uint64_t sign = uint64_t{1} << 63;
  if (isfinite(weight)) {
    const uint64_t unit = uint64_t{1} << (52 - tie_bits);
    bits = (bits + unit / 2) & ~(unit - 1);
  }
  return ~(bits & sign ? ~bits : bits | sign);
}

// After rounding to kTieBits the low word is zero for float, except for weights that are not finite: among
// those the index decides.
template <class S>
using Key = std::conditional_t<sizeof(S) == 8, uint64_t, uint32_t>;
template <class S>
__device__ __forceinline__ Key<S> key_of(S weight) {
  const uint64_t key = descending_key(static_cast<double>(weight), kTieBits<S>);
  return static_cast<Key<S>>(sizeof(S) == 8 ? key : key >> 32);
}

using dealing::count_of, dealing::lane_of, dealing::lower_lanes, dealing::warp_of, dealing::kAllLanes;
inline constexpr unsigned kThreads = 1024, kWarps = kThreads / 32;
inline constexpr unsigned kHeld = 6;  // pairs a thread keeps in registers; others are reread
inline constexpr unsigned kDigits = 256, kDigitBits = 8;

struct Search {
  uint32_t digits[kDigits];
  uint32_t sums[kWarps];
  uint32_t expert, count;           // the next expert and its pairs
  uint32_t digit, smaller, equals;  // digit of the last kept; pairs below it, pairs with it
};

template <class S>
struct Entry {
  LimitPair pair;
  Key<S> key;
};

// The pairs of a column. Thread t has pair t of each kThreads.
template <class S>
struct Column {
  const LimitPair* pairs;
  const S* weights;  // null: all keys are zero
  uint32_t count;
  Entry<S> held[kHeld];

  __device__ __forceinline__ Entry<S> read(uint32_t i) const {
    if (i >= count) return {{0, ~0u}, 0};  // no expert
    const LimitPair pair = pairs[i];
    return {pair, weights != nullptr ? key_of(weights[pair.place]) : Key<S>{0}};
  }
  __device__ __forceinline__ Column(const LimitPair* p, const S* w, uint32_t n)
      : pairs(p), weights(w), count(n) {
#pragma unroll
    for (unsigned h = 0; h < kHeld; ++h) held[h] = read(h * kThreads + threadIdx.x);
  }
  // Calls f with every entry of this thread, in order, and equally often in all threads.
  template <class F>
  __device__ __forceinline__ void each(const F& f) const {
#pragma unroll
    for (unsigned h = 0; h < kHeld; ++h)
      if (h * kThreads < count) f(held[h]);
#pragma unroll 1
    for (uint32_t from = kHeld * kThreads; from < count; from += kThreads) f(read(from + threadIdx.x));
  }
};

// The lowest expert from `first` on, ~0 when there is none, and its pairs.
template <class S>
__device__ __forceinline__ void next_expert(const Column<S>& column, uint32_t first, Search& search) {
  if (threadIdx.x == 0) {
    search.expert = ~0u;
    search.count = 0;
  }
  __syncthreads();
  uint32_t lowest = ~0u;
  column.each(
      [&](const Entry<S>& e) { lowest = e.pair.expert >= first ? min(lowest, e.pair.expert) : lowest; });
  lowest = __reduce_min_sync(kAllLanes, lowest);
  if (lane_of() == 0 && lowest != ~0u) atomicMin(&search.expert, lowest);
  __syncthreads();
  uint32_t count = 0;
  column.each([&](const Entry<S>& e) { count += e.pair.expert == search.expert; });
  count = __reduce_add_sync(kAllLanes, count);
  if (lane_of() == 0 && count > 0) atomicAdd(&search.count, count);
  __syncthreads();
}

// Finds the digit of the last of `need` pairs, which is between one and the number counted. Called by one
// warp.
__device__ __forceinline__ void find_digit(uint32_t need, Search& search) {
  constexpr unsigned kEach = kDigits / 32;
  uint32_t count[kEach], sum = 0;
#pragma unroll
  for (unsigned d = 0; d < kEach; ++d) sum += count[d] = search.digits[lane_of() * kEach + d];
  uint32_t upto = sum;
#pragma unroll
  for (unsigned d = 1; d < 32; d *= 2) {
    const uint32_t left = __shfl_up_sync(kAllLanes, upto, d);
    if (lane_of() >= d) upto += left;
  }
  uint32_t smaller = upto - sum;
#pragma unroll
  for (unsigned d = 0; d < kEach; ++d) {
    if (smaller < need && need <= smaller + count[d]) {
      search.digit = lane_of() * kEach + d;
      search.smaller = smaller;
      search.equals = count[d];
    }
    smaller += count[d];
  }
}

// Which pairs of an expert are kept: those whose key's upper bits are below `value`, and the first `need` of
// those that are equal to it.
template <class S>
struct Last {
  Key<S> mask = 0, value = 0;
  uint32_t need;
  bool all = false;  // all equal ones are kept
};

template <class S>
__device__ __forceinline__ void find_last(const Column<S>& column, uint32_t expert, Last<S>& last,
                                          Search& search) {
#pragma unroll 1
  for (int shift = static_cast<int>(sizeof(S)) * 8 - static_cast<int>(kDigitBits); shift >= 0 && !last.all;
       shift -= static_cast<int>(kDigitBits)) {
    if (threadIdx.x < kDigits) search.digits[threadIdx.x] = 0;
    __syncthreads();
    column.each([&](const Entry<S>& e) {
      if (e.pair.expert == expert && (e.key & last.mask) == last.value)
        atomicAdd(&search.digits[e.key >> shift & (kDigits - 1)], 1u);
    });
    __syncthreads();
    if (warp_of() == 0) find_digit(last.need, search);
    __syncthreads();
    last.mask |= Key<S>{kDigits - 1} << shift;
    last.value |= Key<S>{search.digit} << shift;
    last.need -= search.smaller;
    last.all = search.equals == last.need;
  }
}

// Number of set flags in all lower threads; `total` counts all. Called by all threads.
__device__ __forceinline__ uint32_t rank_of(bool flag, Search& search, uint32_t& total) {
  const unsigned flags = __ballot_sync(kAllLanes, flag);
  if (lane_of() == 0) search.sums[warp_of()] = count_of(flags);
  __syncthreads();
  const uint32_t sum = search.sums[lane_of()];
  total = __reduce_add_sync(kAllLanes, sum);
  const uint32_t before = __reduce_add_sync(kAllLanes, lane_of() < warp_of() ? sum : 0);
  __syncthreads();
  return before + count_of(flags & lower_lanes());
}

template <class S>
__global__ void __launch_bounds__(kThreads)
    keep_kernel(const LimitPair* pairs, int64_t group_pairs, const LimitColumn* ends, const S* weights,
                int64_t capacity, int32_t* kept) {
  await_previous();
  __shared__ Search search;
  const LimitColumn range = ends[blockIdx.y * kLimitColumns + blockIdx.x];
  if (range.count == 0) return;
  const Column<S> column(pairs + blockIdx.y * group_pairs + range.start, weights, range.count);
  uint32_t first = 0;
#pragma unroll 1
  while (true) {
    next_expert(column, first, search);
    const uint32_t expert = search.expert, count = search.count;
    if (expert == ~0u) break;
    first = expert + 1;
    Last<S> last{.need = static_cast<uint32_t>(min(capacity, int64_t{count}))};
    last.all = last.need == count;
    if (weights != nullptr && last.need > 0) find_last(column, expert, last, search);
    uint32_t met = 0;
    column.each([&](const Entry<S>& e) {
      const bool mine = e.pair.expert == expert;
      const Key<S> key = e.key & last.mask;
      bool keep = key < last.value || (key == last.value && last.all);
      if (!last.all) {
        uint32_t total;
        const bool equal = mine && key == last.value;
        const uint32_t rank = met + rank_of(equal, search, total);
        met += total;
        keep = keep || (equal && rank < last.need);
      }
      if (mine) kept[e.pair.place] = keep ? static_cast<int32_t>(expert) : -1;
    });
    __syncthreads();  // the next expert overwrites the search
  }
}

// A thread draws four weights of a row.
__global__ void __launch_bounds__(256)
    random_weights_kernel(const int32_t* samples, const int32_t* positions, const uint64_t* key,
                          double* weights, int64_t rows, int64_t k) {
  await_previous();
  const int64_t draws = (k + 3) / 4, i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= rows * draws) return;
  const int64_t row = i / draws, first = i % draws * 4;
  const Words<4> words = philox(*key, static_cast<uint32_t>(first / 4), static_cast<uint32_t>(positions[row]),
                                static_cast<uint32_t>(samples[row]), 0);
#pragma unroll
  for (int j = 0; j < 4; ++j)
    if (first + j < k) weights[row * k + first + j] = (words.w[j] + 0.5) * 0x1p-32;
}

}  // namespace

void random_weights(const int32_t* samples, const int32_t* positions, const uint64_t* key, double* weights,
                    int64_t rows, int64_t k, Stream stream) {
  if (rows <= 0 || k <= 0) return;
  const auto blocks = static_cast<unsigned>(divide_up(rows * ((k + 3) / 4), 256));
  random_weights_kernel<<<blocks, 256, 0, stream>>>(samples, positions, key, weights, rows, k);
  check_launch("random_weights");
}

template <class S>
void limit(const LimitShape& s, const int32_t* chosen, const S* weights, int32_t* kept, void* workspace,
           Stream stream) {
  const int64_t pairs = s.order.rows() * s.k;
  if (pairs <= 0) return;
  const int64_t groups = s.order.sequences / s.group, group_pairs = pairs / groups;
  if (pairs >= (int64_t{1} << 31) || groups >= (int64_t{1} << 16))
    fail("limit: " + std::to_string(pairs) + " choices in " + std::to_string(groups) +
         " groups, fewer than 2^31 choices and 2^16 groups are supported");
  auto* const memory = static_cast<std::byte*>(workspace);
  auto* const dealt = reinterpret_cast<LimitPair*>(memory);
  std::byte* const behind = memory + aligned(pairs * int64_t{sizeof(LimitPair)});
  auto* const ends = reinterpret_cast<LimitColumn*>(behind);
  auto* const counts =
      reinterpret_cast<uint32_t*>(behind + aligned(groups * kLimitColumns * int64_t{sizeof(LimitColumn)}));
  const Deal body{.rows = WholeRows(s.order),
                  .k = s.k,
                  .group_pairs = group_pairs,
                  .chosen = chosen,
                  .pairs = dealt,
                  .ends = ends,
                  .kept = kept};
  deal(body, group_pairs, 1, groups, counts, stream, "limit");
  keep_kernel<S><<<dim3(kLimitColumns, static_cast<unsigned>(groups)), kThreads, 0, stream>>>(
      dealt, group_pairs, ends, s.by_weight ? weights : nullptr, s.capacity, kept);
  check_launch("limit");
}

template decltype(limit<double>) limit<double>;
template decltype(limit<float>) limit<float>;

}  // namespace quintet::kernels::cuda

// The pairs of all groups are sorted by (group, expert, falling weight, index): stable sorts by the parts of
// that key, the last part first. Indices are the order in which pairs begin.
#include "kernels/cuda/router_limit.h"
#include "kernels/cuda/row_order.cuh"
#include "kernels/cuda/sort.cuh"

namespace quintet::kernels::cuda {
namespace {

inline constexpr int kThreads = 256;

struct Places {
  WholeRows rows;
  int64_t k, group_tokens, group;

  explicit Places(const LimitShape& s)
      : rows(s.order), k(s.k), group_tokens(s.group * s.order.seq_len), group(s.group) {}

  __device__ __forceinline__ int64_t group_of(int64_t index) const { return index / (group_tokens * k); }
  // Where a pair, counted over all groups by (sequence, position, choice), lies in chosen, weights and kept.
  __device__ __forceinline__ int64_t place(int64_t index) const {
    const int64_t token = index / k;
    return rows.row(token / rows.seq_len, token % rows.seq_len) * k + index % k;
  }
};

// As on the CPU: falls as the weight rises and orders every bit pattern; rounded to kTieBits first.
__device__ __forceinline__ uint64_t falling(double weight, int tie_bits) {
  uint64_t bits = static_cast<uint64_t>(__double_as_longlong(weight + 0.0));
  const uint64_t sign = uint64_t{1} << 63;
  if (isfinite(weight)) {
    const uint64_t unit = uint64_t{1} << (52 - tie_bits);
    bits = (bits + unit / 2) & ~(unit - 1);
  }
  return ~(bits & sign ? ~bits : bits | sign);
}

inline constexpr int kExpertBits = 16;

enum class Part : int { Low, High, Owner };

template <class S>
__global__ void __launch_bounds__(kThreads)
    keys_kernel(const __grid_constant__ Places places, Part part, bool first, const int32_t* chosen,
                const S* weights, int64_t pairs, SortPair* list) {
  await_previous();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= pairs) return;
  const uint32_t index = first ? static_cast<uint32_t>(i) : list[i].value;
  const int64_t at = places.place(index);
  uint32_t key;
  if (part == Part::Owner) {
    const int32_t expert = chosen[at] < 0 ? 0 : chosen[at] + 1;
    key = static_cast<uint32_t>(places.group_of(index) << kExpertBits) | static_cast<uint32_t>(expert);
  } else {
    const uint64_t priority = falling(static_cast<double>(weights[at]), cpu::kTieBits<S>);
    key = static_cast<uint32_t>(part == Part::High ? priority >> 32 : priority);
  }
  list[i] = {key, index};
}

__global__ void __launch_bounds__(kThreads)
    keep_kernel(const __grid_constant__ Places places, const SortPair* sorted, const int32_t* chosen,
                int64_t capacity, int64_t pairs, int32_t* kept) {
  await_previous();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= pairs) return;
  const SortPair pair = sorted[i];
  int64_t low = 0, high = i;  // the first pair of the same group and expert
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (sorted[middle].key < pair.key)
      low = middle + 1;
    else
      high = middle;
  }
  const int64_t at = places.place(pair.value);
  kept[at] = i - low < capacity ? chosen[at] : -1;
}

}  // namespace

template <class S>
void limit(const LimitShape& s, const int32_t* chosen, const S* weights, int32_t* kept, void* workspace,
           Stream stream) {
  const int64_t pairs = s.order.rows() * s.k;
  if (pairs <= 0) return;
  const int64_t groups = s.order.sequences / s.group;
  if (pairs >= (int64_t{1} << 32) || groups >= (int64_t{1} << (32 - kExpertBits)))
    fail("limit: " + std::to_string(pairs) + " choices are more than it is made for");
  auto* const memory = static_cast<std::byte*>(workspace);
  const int64_t size = aligned(pairs * int64_t{sizeof(SortPair)});
  SortPair *list = reinterpret_cast<SortPair*>(memory), *other = reinterpret_cast<SortPair*>(memory + size);
  void* const counts = memory + 2 * size;
  const Places places(s);
  const auto blocks = static_cast<unsigned>(divide_up(pairs, kThreads));
  bool first = true;
  const auto sort_by = [&](Part part, int bits) {
    keys_kernel<S><<<blocks, kThreads, 0, stream>>>(places, part, first, chosen, weights, pairs, list);
    check_launch("limit");
    first = false;
    SortPair* const sorted = sort_pairs(list, other, pairs, bits, counts, stream);
    if (sorted != list) {
      other = list;
      list = sorted;
    }
  };
  if (s.by_weight) {
    // What kTieBits leave of the low word is nothing for float, but for weights that are not finite: among
    // those the index decides.
    if (sizeof(S) == 8) sort_by(Part::Low, 32);
    sort_by(Part::High, 32);
  }
  int bits = 0;
  while ((int64_t{1} << bits) < groups) ++bits;
  sort_by(Part::Owner, kExpertBits + bits);
  keep_kernel<<<blocks, kThreads, 0, stream>>>(places, list, chosen, s.capacity, pairs, kept);
  check_launch("limit");
}

template decltype(limit<double>) limit<double>;
template decltype(limit<float>) limit<float>;

}  // namespace quintet::kernels::cuda

#include "kernels/cpu/experts/router_limit.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/philox.h"

namespace quintet::kernels::cpu {
namespace {

// A (row, choice) pair of a group; after sorting, the pairs of an expert are contiguous, those to keep first.
struct Pair {
  uint64_t priority;  // smaller is kept first
  int32_t expert;
  int32_t index;  // by (sequence, position, choice)

  bool operator<(const Pair& other) const {
    if (expert != other.expert) return expert < other.expert;
    if (priority != other.priority) return priority < other.priority;
    return index < other.index;
  }
};

// Decreases as the weight increases, and orders every bit pattern: a NaN must not break the sort. Weights are
// rounded first (see kTieBits); to nearest, so that common values, 1 and 1/2, are not at a boundary.
uint64_t descending_key(double weight, int tie_bits) {
  uint64_t bits = std::bit_cast<uint64_t>(weight + 0.0);  // -0 becomes 0
  const uint64_t sign = uint64_t{1} << 63;
  if (std::isfinite(weight)) {
    const uint64_t unit = uint64_t{1} << (52 - tie_bits);
    bits = (bits + unit / 2) & ~(unit - 1);
  }
  return ~(bits & sign ? ~bits : bits | sign);
}

}  // namespace

int64_t limit_workspace_bytes(const LimitShape& s) {
  return s.order.rows() * s.k * static_cast<int64_t>(sizeof(Pair));
}

template <class S>
void limit(const LimitShape& s, const int32_t* chosen, const S* weights, int32_t* kept, void* workspace,
           ThreadPool& pool) {
  const int64_t tokens = s.group * s.order.seq_len;  // per group
  const auto place = [&](int64_t group, int64_t index) {
    const int64_t token = index / s.k;
    const int64_t row =
        s.order.row_in_whole(group * s.group + token / s.order.seq_len, token % s.order.seq_len);
    return row * s.k + index % s.k;
  };
  pool.parallel_for(0, s.order.sequences / s.group, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t g = begin; g < end; ++g) {
      Pair* pairs = static_cast<Pair*>(workspace) + g * tokens * s.k;
      for (int64_t i = 0; i < tokens * s.k; ++i) {
        const int64_t at = place(g, i);
        pairs[i] = {s.by_weight ? descending_key(static_cast<double>(weights[at]), kTieBits<S>) : 0,
                    chosen[at], static_cast<int32_t>(i)};
      }
      std::sort(pairs, pairs + tokens * s.k);
      int64_t taken = 0;
      for (int64_t i = 0; i < tokens * s.k; ++i) {
        taken = i > 0 && pairs[i].expert == pairs[i - 1].expert ? taken + 1 : 1;
        kept[place(g, pairs[i].index)] = taken <= s.capacity ? pairs[i].expert : -1;
      }
    }
  });
}

void random_weights(const int32_t* samples, const int32_t* positions, uint64_t key, double* weights,
                    int64_t rows, int64_t k, ThreadPool& pool) {
  pool.parallel_for(0, rows, 64, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r)
      for (int64_t j = 0; j < k; ++j) {
        const uint64_t position = static_cast<uint32_t>(positions[r]),
                       sample = static_cast<uint32_t>(samples[r]);
        const auto words = base::philox(key, static_cast<uint64_t>(j / 4) | position << 32, sample);
        weights[r * k + j] = (words[static_cast<size_t>(j % 4)] + 0.5) * 0x1p-32;
      }
  });
}

template decltype(limit<double>) limit<double>;
template decltype(limit<float>) limit<float>;

}  // namespace quintet::kernels::cpu

#include "kernels/cpu/experts/dispatch.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "kernels/cpu/support/isa.h"

namespace quintet::kernels::cpu {

QUINTET_SELECT_VARIANT(dispatch_variants, DispatchVariants)

namespace {

// Rows per parallel range, so that a range is worth waking a thread.
int64_t copy_grain(int64_t row_bytes) {
  return std::max<int64_t>(1, 32768 / std::max<int64_t>(1, row_bytes));
}

}  // namespace

void route(const int32_t* kept, int64_t tokens, int64_t choices, int64_t experts, bool padded, int64_t slots,
           int32_t* order, int32_t* send, void* workspace) {
  int64_t* next = static_cast<int64_t*>(workspace);  // the expert's next free slot
  const int64_t pairs = tokens * choices, each = experts > 0 ? slots / experts : 0;
  QUINTET_CHECK(padded || pairs <= slots, "{} pairs do not fit {} slots", pairs, slots);
  std::fill_n(send, experts, 0);
  for (int64_t p = 0; p < pairs; ++p) {
    QUINTET_CHECK(kept[p] < experts, "pair {} chose expert {} of {}", p, kept[p], experts);
    if (kept[p] >= 0) ++send[kept[p]];
  }
  int64_t used = 0;
  for (int64_t e = 0; e < experts; ++e) {
    QUINTET_CHECK(!padded || send[e] <= each, "expert {} got {} rows, but rows are padded to {}", e, send[e],
                  each);
    next[e] = padded ? e * each : used;
    used += send[e];
  }
  std::fill(order + (padded ? 0 : used), order + slots, -1);
  for (int64_t p = 0; p < pairs; ++p)
    if (kept[p] >= 0) order[next[kept[p]]++] = static_cast<int32_t>(p);
  if (padded) std::fill_n(send, experts, static_cast<int32_t>(each));
}

int64_t route_workspace_bytes(int64_t experts) { return experts * int64_t{sizeof(int64_t)}; }

int64_t split_rows(const PassShape& shape, const int32_t* order, const int32_t* counts, int64_t pass,
                   int32_t* pass_order, int32_t* send, int32_t* received) {
  const int64_t first = pass * shape.rows, last = first + shape.rows;
  const int32_t* const own = counts + shape.position * shape.all_experts;
  const int64_t own_rank = shape.position / shape.copies;
  int64_t passes = 1, slot = 0, used = 0,
          arrived = 0;  // rows before this expert's: sent, in the pass, received
  for (int64_t e = 0; e < shape.all_experts; ++e) {
    if (e % shape.experts == 0) arrived = 0;
    for (int64_t m = 0; m < shape.members; ++m) {
      const int64_t count = counts[m * shape.all_experts + e];
      const int64_t begin = std::clamp(first - arrived, int64_t{0}, count);
      const int64_t end = std::clamp(last - arrived, int64_t{0}, count);
      arrived += count;
      if (e / shape.experts == own_rank)
        received[m * shape.experts + e % shape.experts] = static_cast<int32_t>(end - begin);
      if (m != shape.position) continue;
      send[e] = static_cast<int32_t>(end - begin);
      std::copy(order + slot + begin, order + slot + end, pass_order + used);
      used += end - begin;
    }
    slot += own[e];
    passes = std::max(passes, (arrived + shape.rows - 1) / shape.rows);
  }
  std::fill(pass_order + used, pass_order + shape.slots, -1);
  return passes;
}

void pack_rows(const std::byte* x, const int32_t* order, int64_t choices, bool zero_unused, std::byte* y,
               int64_t slots, int64_t row_bytes, ThreadPool& pool) {
  pool.parallel_for(0, slots, copy_grain(row_bytes), [&](int64_t begin, int64_t end, int) {
    for (int64_t s = begin; s < end; ++s) {
      if (order[s] >= 0)
        std::memcpy(y + s * row_bytes, x + order[s] / choices * row_bytes, static_cast<size_t>(row_bytes));
      else if (zero_unused)
        std::memset(y + s * row_bytes, 0, static_cast<size_t>(row_bytes));
    }
  });
}

template <class T>
void unpack_rows(const T* y, const int32_t* order, int64_t slots, int64_t choices, const T* addend, T* x,
                 int64_t tokens, int64_t n, void* workspace, ThreadPool& pool) {
  int32_t* slot_of = static_cast<int32_t*>(workspace);
  std::fill_n(slot_of, tokens * choices, -1);
  for (int64_t s = 0; s < slots; ++s)
    if (order[s] >= 0) slot_of[order[s]] = static_cast<int32_t>(s);
  variants<T>().sum_slots(y, slot_of, choices, addend, x, tokens, n, pool);
}

int64_t unpack_rows_workspace_bytes(int64_t tokens, int64_t choices) {
  return tokens * choices * int64_t{sizeof(int32_t)};
}

template <class S>
void pack_weights(const S* weights, const int32_t* order, bool zero_unused, S* packed, int64_t slots) {
  for (int64_t s = 0; s < slots; ++s) {
    if (order[s] >= 0)
      packed[s] = weights[order[s]];
    else if (zero_unused)
      packed[s] = 0;
  }
}

template <class S>
void unpack_weights(const S* packed, const int32_t* order, int64_t slots, const S* addend, S* weights,
                    int64_t pairs) {
  if (addend == nullptr)
    std::fill_n(weights, pairs, S(0));
  else if (addend != weights)
    std::copy_n(addend, pairs, weights);
  for (int64_t s = 0; s < slots; ++s)
    if (order[s] >= 0) weights[order[s]] = addend == nullptr ? packed[s] : weights[order[s]] + packed[s];
}

void regroup(const std::byte* x, const int32_t* received, int64_t sources, int64_t experts, bool inverse,
             std::byte* y, int64_t rows, int64_t row_bytes, void* workspace, ThreadPool& pool) {
  // Blocks in the order of the result: where each begins in the result and in x.
  const int64_t blocks = sources * experts;
  int64_t *to = static_cast<int64_t*>(workspace), *from = to + blocks + 1;
  const auto count = [&](int64_t source, int64_t expert) { return received[source * experts + expert]; };
  const auto result_index = [&](int64_t source, int64_t expert) {
    return inverse ? source * experts + expert : expert * sources + source;
  };
  const int64_t outer = inverse ? experts : sources, inner = inverse ? sources : experts;
  int64_t at = 0;
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t i = 0; i < inner; ++i) {
      const int64_t source = inverse ? i : o, expert = inverse ? o : i;
      from[result_index(source, expert)] = at;
      to[result_index(source, expert) + 1] = count(source, expert);
      at += count(source, expert);
    }
  to[0] = 0;
  for (int64_t b = 0; b < blocks; ++b) to[b + 1] += to[b];
  QUINTET_CHECK(at <= rows, "{} rows were received, at most {} were planned", at, rows);
  pool.parallel_for(0, at, copy_grain(row_bytes), [&](int64_t begin, int64_t end, int) {
    int64_t b = std::upper_bound(to, to + blocks + 1, begin) - to - 1;
    for (int64_t r = begin; r < end; ++b) {
      const int64_t last = std::min(end, to[b + 1]);
      std::memcpy(y + r * row_bytes, x + (from[b] + r - to[b]) * row_bytes,
                  static_cast<size_t>((last - r) * row_bytes));
      r = last;
    }
  });
}

int64_t regroup_workspace_bytes(int64_t sources, int64_t experts) {
  return (2 * sources * experts + 1) * int64_t{sizeof(int64_t)};
}

template <class T>
void sum_copies(const T* x, int64_t copies, T* y, int64_t n, ThreadPool& pool) {
  variants<T>().sum_copies(x, copies, y, n, pool);
}

#define INSTANTIATE(T)                              \
  template decltype(unpack_rows<T>) unpack_rows<T>; \
  template decltype(sum_copies<T>) sum_copies<T>;
INSTANTIATE(double)
INSTANTIATE(float)
INSTANTIATE(Bf16)
INSTANTIATE(F16)
#undef INSTANTIATE
template decltype(pack_weights<double>) pack_weights<double>;
template decltype(pack_weights<float>) pack_weights<float>;
template decltype(unpack_weights<double>) unpack_weights<double>;
template decltype(unpack_weights<float>) unpack_weights<float>;

}  // namespace quintet::kernels::cpu

#include "comm/reduce.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <type_traits>

#include "base/error.h"
#include "base/f16.h"

namespace quintet::comm {
namespace {

using base::Bf16;
using base::F16;

// Small enough to stay in the L1 cache together with the source.
constexpr int64_t kBlock = 2048;

template <class T>
struct AccumulatorOf {
  using type = T;
};
template <>
struct AccumulatorOf<Bf16> {
  using type = float;
};
template <>
struct AccumulatorOf<F16> {
  using type = float;
};

struct SumOp {
  template <class A>
  static A apply(A a, A b) {
    if constexpr (std::is_integral_v<A>) {
      using U = std::make_unsigned_t<A>;  // sums wrap
      return static_cast<A>(static_cast<U>(a) + static_cast<U>(b));
    } else {
      return a + b;
    }
  }
};

struct MaxOp {
  template <class A>
  static A apply(A a, A b) {
    if constexpr (std::is_integral_v<A>)
      return b > a ? b : a;
    else
      // NOLINTNEXTLINE(misc-redundant-expression): a NaN on either side propagates
      return (b > a) | (b != b) ? b : a;
  }
};

template <class T, class A>
T rounded_to(A x) {
  return static_cast<T>(x);
}
// Bf16's own conversion, written with a select instead of a branch so that the compiler can vectorise it.
template <>
Bf16 rounded_to<Bf16, float>(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  const uint32_t nearest = u + 0x7fffu + (u >> 16 & 1u), nan = u | 0x400000u;
  Bf16 result;
  result.bits = static_cast<uint16_t>((x != x ? nan : nearest) >> 16);
  return result;
}

// Inlined into each caller, so that it is compiled for the caller's instruction set.
template <class T, class Op>
[[gnu::always_inline]] inline void reduce_blocks(const void* const* sources, int source_count,
                                                 void* const* targets, int target_count, int64_t count) {
  using A = typename AccumulatorOf<T>::type;
  alignas(64) A sum[kBlock];
  alignas(64) std::array<T, std::is_same_v<A, T> ? 0 : kBlock> rounded;
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t n = std::min(kBlock, count - begin);
    const T* first = static_cast<const T*>(sources[0]) + begin;
    if (source_count == 1) {
      for (int64_t i = 0; i < n; ++i) sum[i] = static_cast<A>(first[i]);
    } else {
      const T* second = static_cast<const T*>(sources[1]) + begin;
      for (int64_t i = 0; i < n; ++i) sum[i] = Op::apply(static_cast<A>(first[i]), static_cast<A>(second[i]));
    }
    for (int s = 2; s < source_count; ++s) {
      const T* next = static_cast<const T*>(sources[s]) + begin;
      for (int64_t i = 0; i < n; ++i) sum[i] = Op::apply(sum[i], static_cast<A>(next[i]));
    }
    if constexpr (std::is_same_v<A, T>) {
      for (int t = 0; t < target_count; ++t)
        std::memcpy(static_cast<T*>(targets[t]) + begin, sum, static_cast<size_t>(n) * sizeof(T));
    } else {
      for (int64_t i = 0; i < n; ++i) rounded[static_cast<size_t>(i)] = rounded_to<T>(sum[i]);
      for (int t = 0; t < target_count; ++t)
        std::memcpy(static_cast<T*>(targets[t]) + begin, rounded.data(), static_cast<size_t>(n) * sizeof(T));
    }
  }
}

template <class T>
void reduce_baseline(const void* const* sources, int source_count, void* const* targets, int target_count,
                     int64_t count, ReduceOp op) {
  if (op == ReduceOp::Sum)
    reduce_blocks<T, SumOp>(sources, source_count, targets, target_count, count);
  else
    reduce_blocks<T, MaxOp>(sources, source_count, targets, target_count, count);
}

#if defined(__x86_64__)
// The same operations in the same order on wider registers: equal bits. The bf16 conversions gain most.
template <class T>
[[gnu::target("avx2")]] void reduce_wide(const void* const* sources, int source_count, void* const* targets,
                                         int target_count, int64_t count, ReduceOp op) {
  if (op == ReduceOp::Sum)
    reduce_blocks<T, SumOp>(sources, source_count, targets, target_count, count);
  else
    reduce_blocks<T, MaxOp>(sources, source_count, targets, target_count, count);
}
bool is_wide() {
  static const bool wide = __builtin_cpu_supports("avx2");
  return wide;
}
#else
template <class T>
constexpr auto reduce_wide = reduce_baseline<T>;
constexpr bool is_wide() { return false; }
#endif

template <class T>
void reduce_typed(const void* const* sources, int source_count, void* const* targets, int target_count,
                  int64_t count, ReduceOp op) {
  if (is_wide())
    reduce_wide<T>(sources, source_count, targets, target_count, count, op);
  else
    reduce_baseline<T>(sources, source_count, targets, target_count, count, op);
}

}  // namespace

void reduce_in_order(const void* const* sources, int source_count, void* const* targets, int target_count,
                     int64_t count, base::DType dtype, ReduceOp op) {
  switch (dtype) {
    case base::DType::F64:
      return reduce_typed<double>(sources, source_count, targets, target_count, count, op);
    case base::DType::F32:
      return reduce_typed<float>(sources, source_count, targets, target_count, count, op);
    case base::DType::BF16:
      return reduce_typed<Bf16>(sources, source_count, targets, target_count, count, op);
    case base::DType::F16:
      return reduce_typed<F16>(sources, source_count, targets, target_count, count, op);
    case base::DType::I64:
      return reduce_typed<int64_t>(sources, source_count, targets, target_count, count, op);
    case base::DType::I32:
      return reduce_typed<int32_t>(sources, source_count, targets, target_count, count, op);
    case base::DType::U8:
      return reduce_typed<uint8_t>(sources, source_count, targets, target_count, count, op);
    case base::DType::I16:
    case base::DType::E4M3:
    case base::DType::E5M2:
      break;
  }
  base::fail_internal("{} cannot be reduced", base::to_string(dtype));
}

}  // namespace quintet::comm

#include "kernels/cpu/support/isa.h"

#include <algorithm>
#include <atomic>

namespace quintet::kernels::cpu {
namespace {

Isa detect() {
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !__builtin_cpu_supports("f16c"))
    return Isa::Baseline;
  const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return wide ? Isa::Avx512 : Isa::Avx2;
}

std::atomic<Isa> limit{Isa::Avx512};

}  // namespace

Isa isa() {
  static const Isa best = detect();
  return std::min(best, limit.load(std::memory_order_relaxed));
}

void limit_isa(Isa most) { limit.store(most, std::memory_order_relaxed); }

}  // namespace quintet::kernels::cpu

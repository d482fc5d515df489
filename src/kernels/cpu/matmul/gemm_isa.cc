// Which kernels this processor can run, and which are in use.
#include <atomic>

#include "base/error.h"
#include "kernels/cpu/matmul/tile.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace quintet::kernels {
namespace {

using base::DType;

#if defined(__x86_64__)
// The compiler's builtin also checks that the operating system saves the vector registers.
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}
bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
bool has_avx512bf16() {
  unsigned a, b, c, d;
  return has_avx512() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 5 & 1);
}
bool has_amx() {
  unsigned a, b, c, d;
  // Leaf 7: bit 22 AMX-BF16, bit 24 AMX-TILE.
  if (!has_avx512() || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d >> 22 & 1) || !(d >> 24 & 1))
    return false;
  // Linux enables the tile registers only on request, then for all threads of the process.
  constexpr long kArchReqXcompPerm = 0x1023, kXfeatureTileData = 18;
  return syscall(SYS_arch_prctl, kArchReqXcompPerm, kXfeatureTileData) == 0;
}
#else
bool has_avx2() { return false; }
bool has_avx512() { return false; }
bool has_avx512bf16() { return false; }
bool has_amx() { return false; }
#endif

const TileKernel* kernel_of(GemmIsa isa, DType type) {
  switch (isa) {
    case GemmIsa::Portable:
      return portable_kernel(type);
    case GemmIsa::Avx2:
      return avx2_kernel(type);
    case GemmIsa::Avx512:
      return avx512_kernel(type);
    case GemmIsa::Avx512Bf16:
      return avx512bf16_kernel(type);
    case GemmIsa::Amx:
      return amx_kernel(type);
  }
  return nullptr;
}

std::atomic<GemmIsa>& in_use() {
  static std::atomic<GemmIsa> isa = gemm_isas().back();
  return isa;
}

}  // namespace

std::string_view to_string(GemmIsa isa) {
  switch (isa) {
    case GemmIsa::Portable:
      return "portable";
    case GemmIsa::Avx2:
      return "avx2";
    case GemmIsa::Avx512:
      return "avx512";
    case GemmIsa::Avx512Bf16:
      return "avx512-bf16";
    case GemmIsa::Amx:
      return "amx";
  }
  return "";
}

const std::vector<GemmIsa>& gemm_isas() {
  static const std::vector<GemmIsa> isas = [] {
    std::vector<GemmIsa> found = {GemmIsa::Portable};
    const auto add = [&](GemmIsa isa, bool here) {
      if (here && kernel_of(isa, DType::F32) != nullptr) found.push_back(isa);
    };
    add(GemmIsa::Avx2, has_avx2());
    add(GemmIsa::Avx512, has_avx512());
    add(GemmIsa::Avx512Bf16, has_avx512bf16());
    add(GemmIsa::Amx, has_amx());
    return found;
  }();
  return isas;
}

GemmIsa gemm_isa() { return in_use().load(std::memory_order_relaxed); }

void set_gemm_isa(GemmIsa isa) {
  bool here = false;
  for (GemmIsa one : gemm_isas()) here |= one == isa;
  QUINTET_CHECK(here, "this processor cannot run {} kernels", to_string(isa));
  in_use().store(isa, std::memory_order_relaxed);
}

const TileKernel& tile_kernel(DType type) { return *kernel_of(gemm_isa(), type); }

}  // namespace quintet::kernels

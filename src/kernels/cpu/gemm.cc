#include "kernels/cpu/gemm.h"

#include "base/error.h"

namespace quintet::kernels {
namespace {

using base::Bf16;
using base::DType;

template <class T, class C, class Acc>
void plain(const GemmArgs& g) {
  const T* a = static_cast<const T*>(g.a);
  const T* b = static_cast<const T*>(g.b);
  C* c = static_cast<C*>(g.c);
  for (int64_t i = 0; i < g.m; ++i)
    for (int64_t j = 0; j < g.n; ++j) {
      Acc sum = 0;
      for (int64_t p = 0; p < g.k; ++p)
        sum += static_cast<Acc>(a[g.trans_a ? p * g.lda + i : i * g.lda + p]) *
               static_cast<Acc>(b[g.trans_b ? j * g.ldb + p : p * g.ldb + j]);
      C& out = c[i * g.ldc + j];
      out = C(g.accumulate ? static_cast<Acc>(out) + sum : sum);
    }
}

}  // namespace

int64_t gemm_workspace_bytes(int64_t, int64_t, int64_t, DType, DType, int) { return 0; }

void gemm_serial(const GemmArgs& g, void*, int64_t) {
  if (g.a_type == DType::F64) return plain<double, double, double>(g);
  if (g.a_type == DType::F32) return plain<float, float, float>(g);
  if (g.c_type == DType::F32) return plain<Bf16, float, float>(g);
  plain<Bf16, Bf16, float>(g);
}

void gemm(const GemmArgs& g, void* workspace, int64_t bytes, device::ThreadPool&) {
  gemm_serial(g, workspace, bytes);
}

std::string_view to_string(GemmIsa) { return "portable"; }
const std::vector<GemmIsa>& gemm_isas() {
  static const std::vector<GemmIsa> isas = {GemmIsa::Portable};
  return isas;
}
GemmIsa gemm_isa() { return GemmIsa::Portable; }
void set_gemm_isa(GemmIsa) {}

}  // namespace quintet::kernels

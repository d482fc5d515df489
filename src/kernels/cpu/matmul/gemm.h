// GEMM on the CPU: C (+)= op(A) op(B), row-major, with scratch that the caller plans.
//
// Bits: an element of C depends only on its row of op(A), its column of op(B), k, the types and the
// instruction set: not on the number of threads, not on m and n, not on the element's position in the
// matrix.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "device/thread_pool.h"

namespace quintet::kernels {

// op(A) is m x k, op(B) is k x n, C is m x n. A is stored m x k, or k x m when trans_a; B is stored k x n, or
// n x k when trans_b. Leading dims count elements between rows as stored. Any size may be 0; k == 0 is an
// empty sum: C becomes 0, or is unchanged when accumulating. C must not overlap A, B or the workspace.
// Types: f64 x f64 -> f64, f32 x f32 -> f32, bf16 x bf16 -> f32 or bf16, f16 x f16 -> f32 or f16. Narrow
// types are summed in f32 and rounded to C's type once (narrow C with `accumulate`: after C is added).
// Hardware bf16 units flush subnormal inputs and partial sums to zero.
struct GemmArgs {
  bool trans_a = false, trans_b = false;
  int64_t m = 0, n = 0, k = 0;
  const void* a = nullptr;
  int64_t lda = 0;
  const void* b = nullptr;
  int64_t ldb = 0;
  void* c = nullptr;
  int64_t ldc = 0;
  base::DType a_type = base::DType::F32, b_type = base::DType::F32, c_type = base::DType::F32;
  bool accumulate = false;
  // C becomes addend + op(A) op(B): m x n elements of C's type, ldc apart; may be C itself, and must not
  // overlap it otherwise. Summed as if C had held it and `accumulate` were set.
  const void* addend = nullptr;
};

// Sufficient scratch for gemm() with these sizes, on every instruction set: a plan made on one machine
// holds on another. The short form is for C of the operands' type.
int64_t gemm_workspace_bytes(int64_t m, int64_t n, int64_t k, base::DType ab_type, base::DType c_type,
                             int threads);
inline int64_t gemm_workspace_bytes(int64_t m, int64_t n, int64_t k, base::DType type, int threads) {
  return gemm_workspace_bytes(m, n, k, type, type, threads);
}

// Sufficient scratch for every GEMM of at most these sizes; gemm_workspace_bytes covers one exact size, and a
// smaller GEMM may use larger blocks.
int64_t gemm_workspace_bound(int64_t m, int64_t n, int64_t k, base::DType ab_type, base::DType c_type,
                             int threads);

// The workspace must be aligned to 64 bytes. Allocates nothing.
void gemm(const GemmArgs& args, void* workspace, int64_t workspace_bytes, device::ThreadPool& pool);

// The same result, to the bit, on the calling thread alone: for callers that are already inside
// parallel_for. Its workspace is that of one thread.
void gemm_serial(const GemmArgs& args, void* workspace, int64_t workspace_bytes);

// Instruction sets in ascending order. bf16 GEMMs use the best unit of the set.
enum class GemmIsa : uint8_t { Portable, Avx2, Avx512, Avx512Bf16, Amx };
std::string_view to_string(GemmIsa isa);

// The sets that this processor and operating system can run, in ascending order; never empty.
const std::vector<GemmIsa>& gemm_isas();

// The set in use: by default the best. Setting one (for tests and benchmarks) applies to the whole process
// and must not happen while a GEMM runs.
GemmIsa gemm_isa();
void set_gemm_isa(GemmIsa isa);

}  // namespace quintet::kernels

// GEMM on the CPU: C (+)= op(A) op(B), row-major, with scratch that the caller plans.
//
// Bits: an element of C depends only on its row of op(A), its column of op(B), k, the types and the
// instruction set: not on the number of threads, not on m and n, not on the element's position in the
// matrix.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "device/thread_pool.h"
#include "kernels/gemm_args.h"

namespace quintet::kernels {

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

// Arguments of GEMM and grouped GEMM, on every backend.
#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace quintet::kernels {

// op(A) is m x k, op(B) is k x n, C is m x n. A is stored m x k, or k x m when trans_a; B is stored k x n, or
// n x k when trans_b. Leading dims count elements between rows as stored. Any size may be 0; k == 0 is an
// empty sum: C becomes 0, or is unchanged when accumulating. C must not overlap A, B or the workspace.
// Types: f64 x f64 -> f64, f32 x f32 -> f32, bf16 x bf16 -> f32 or bf16, f16 x f16 -> f32 or f16; on a GPU
// also codes, e4m3 x e4m3, e4m3 x e5m2 and e5m2 x e4m3 -> f32 or bf16. Narrow types are summed in f32 and
// rounded to C's type once (narrow C with `accumulate`: after C is added).
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
  // Codes only: op(A) op(B) is multiplied by *a_scale * *b_scale, which are in device memory. A is not
  // transposed and B is; sizes, leading dims and all addresses are multiples of 16 bytes.
  const float *a_scale = nullptr, *b_scale = nullptr;
  // Codes only: sums inside the tensor cores keep about 14 bits, and are not added in f32 now and then.
  bool fast_accumulation = false;
};

// Grouped GEMM: one matmul per expert, over the rows that were routed to it.
//
// `received` holds sources x experts counts; an expert's rows are the sum of its counts over the sources.
// They are contiguous, in expert order, together at most `rows`. Rows past them are neither read nor written.
// An expert may have no rows, or all.
struct GroupedArgs {
  int64_t rows = 0;     // upper bound
  int64_t experts = 0;  // on this rank
  int64_t out = 0, in = 0;
  int64_t sources = 1;
  const int32_t* received = nullptr;
  const void* a = nullptr;  // x, or dy
  const void* b = nullptr;  // w, or x for dw
  void* c = nullptr;
  base::DType type = base::DType::F32, c_type = base::DType::F32;
  bool accumulate = false;       // dw only
  const void* addend = nullptr;  // dx only: added to it row by row; may be c
};

}  // namespace quintet::kernels

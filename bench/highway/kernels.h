// Four hot CPU kernels written with Google Highway, for the comparison in decision 0016. Arguments and
// arithmetic are those of our own; every call takes the widest instruction set of the processor.
#pragma once

#include <cstdint>

namespace highway_bench {

struct AdamW {
  float keep, rate, root, clip, beta1, beta2, rest1, rest2, eps;  // rest: 1 - beta
};
void adamw(float* p, float* m, float* v, const float* g, int64_t n, const AdamW& k);
void rmsnorm(const float* x, const float* w, float* y, float* rstd, int64_t rows, int64_t n, float eps);
void swiglu(const float* gate, const float* up, float* y, int64_t n);
// C (14 rows, 2 vectors of columns) += A panel * B panel over k; packed as ours (kernels/cpu/matmul/tile.h).
void tile14(int64_t k, const float* a, const float* b, float* c, int64_t ldc);

const char* target();  // the instruction set in use

}  // namespace highway_bench

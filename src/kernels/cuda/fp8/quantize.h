// Codes of matrices, and of the results of norms and gated activations without storing these: their values
// are rounded to bf16 first, so the codes equal those of the stored result. Sizes are multiples of 16.
#pragma once

#include "kernels/cuda/fp8/codes.h"
#include "kernels/gate.h"
#include "kernels/quantize_args.h"

namespace quintet::kernels::cuda {

// bf16 x only; `amax` and `rounded` must be accumulated or null.
void quantize(const QuantizeArgs& args, Stream stream);

// bf16 x, E4M3 codes and blocks of kCodeBlock only; `rounded` must be accumulated or null.
inline constexpr int kCodeBlock = 128;
void quantize_blocks(const QuantizeBlocksArgs& args, Stream stream);

// swiglu (elementwise/activation.h).
void swiglu_codes(const Bf16* gate, const Bf16* up, int64_t in_stride, int64_t rows, int64_t n, Gate act,
                  const CodeTarget& to, Stream stream);
// swiglu_backward: the codes of dgate | dup as one matrix of 2 n columns, and of the forward result.
// `again.rows` and `again.measures.amax` must be null; with `again.columns` null it is not computed.
void swiglu_backward_codes(const Bf16* dy, const Bf16* gate, const Bf16* up, int64_t in_stride, int64_t rows,
                           int64_t n, Gate act, const CodeTarget& gradients, const CodeTarget& again,
                           Stream stream);

// rmsnorm and add_rmsnorm (norm/norm.h), row-major only. `residual` and `sum` may be null.
void rmsnorm_codes(const Bf16* x, const Bf16* residual, const Bf16* w, Bf16* sum, float* rstd, int64_t rows,
                   int64_t n, double eps, double offset, const CodeTarget& to, Stream stream);
// The result of rmsnorm again, from its statistics.
void rmsnorm_again_codes(const Bf16* x, const Bf16* w, const float* rstd, int64_t rows, int64_t n,
                         double offset, const CodeTarget& to, Stream stream);

}  // namespace quintet::kernels::cuda

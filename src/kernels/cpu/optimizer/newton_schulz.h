// Muon's kernels: momentum over flat ranges, pieces of matrices, and Newton-Schulz on whole matrices.
#pragma once

#include <span>

#include "kernels/cpu/optimizer/rounding.h"
#include "kernels/cpu/support/types.h"
#include "kernels/matrix_pieces.h"

namespace quintet::kernels::cpu {

// As in torch.optim.Muon, with g = clip * gradient: m += (1 - momentum) (g - m). Arithmetic is in double if
// Moment is double, else in float. Moment and Gradient are both double, or each is float or Bf16. `rounding`
// may be null: to nearest.
template <class Moment, class Gradient>
void muon_momentum(Moment* m, const Gradient* gradient, int64_t n, double clip, double momentum,
                   const Rounding* rounding, ThreadPool& pool);

// direction = nesterov ? g + momentum (m - g) : m, rounded to T: double, float or Bf16.
template <class T, class Moment, class Gradient>
void muon_direction(const Moment* m, const Gradient* gradient, T* direction, int64_t n, double clip,
                    double momentum, bool nesterov, ThreadPool& pool);

// `buffer` holds all pieces of some matrices of rows x columns. Each matrix X is replaced by
//   scale * NS(X / max(|X|, eps)),  NS: X := a X + b (X X^T) X + c (X X^T)^2 X, `steps` times,
// with X transposed if it has more rows than columns. GEMMs read and write T and accumulate in f32 (f64 if T
// is double). T is double, float or Bf16.
struct NewtonSchulz {
  int64_t rows = 0, columns = 0;
  int steps = 5;
  double a = 0, b = 0, c = 0, eps = 0, scale = 1;
};
template <class T>
void newton_schulz(const NewtonSchulz& problem, T* buffer, std::span<const MatrixPiece> pieces,
                   void* workspace, int64_t workspace_bytes, ThreadPool& pool);
int64_t newton_schulz_workspace_bytes(int64_t rows, int64_t columns, base::DType dtype, int threads);

}  // namespace quintet::kernels::cpu

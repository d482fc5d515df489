// Muon's kernels: momentum over flat ranges, pieces of matrices, and Newton-Schulz on whole matrices.
#pragma once

#include <span>

#include "kernels/cpu/support/types.h"
#include "kernels/matrix_pieces.h"

namespace quintet::kernels::cpu {

// With g = clip * gradient, as torch.optim.Muon: m += (1 - momentum) (g - m). Arithmetic is in double where
// Moment is double, else in float. Moment and Gradient are double both, or float or Bf16 each.
template <class Moment, class Gradient>
void muon_momentum(Moment* m, const Gradient* gradient, int64_t n, double clip, double momentum,
                   ThreadPool& pool);

// direction = nesterov ? g + momentum (m - g) : m, rounded to T: double, float or Bf16.
template <class T, class Moment, class Gradient>
void muon_direction(const Moment* m, const Gradient* gradient, T* direction, int64_t n, double clip,
                    double momentum, bool nesterov, ThreadPool& pool);

// In `buffer` pieces of matrices of rows x columns; of each matrix all pieces. They become pieces of
//   scale * NS(X / max(|X|, eps)),  NS: X := a X + b (X X^T) X + c (X X^T)^2 X, `steps` times,
// with X transposed where that gives it more columns than rows. GEMMs read and write T and sum in f32
// (double: f64). T is double, float or Bf16.
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

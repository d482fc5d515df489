// Muon's kernels: contracts in kernels/cpu/optimizer/newton_schulz.h, on device memory.
#pragma once

#include <span>
#include <vector>

#include "kernels/cuda/matmul/matmul.h"
#include "kernels/cuda/support/types.h"
#include "kernels/matrix_pieces.h"
#include "kernels/update_ranges.h"

namespace quintet::kernels::cuda {

// Writes nothing when *ok is 0. Scalars are in device memory. `update`, the number of this update, is read
// only where `origin` asks for stochastic rounding.
template <class Moment, class Gradient>
void muon_momentum(Moment* m, const Gradient* gradient, int64_t n, const double* clip, const double* ok,
                   const double* update, double momentum, const Origin& origin, Stream stream);

template <class T, class Moment, class Gradient>
void muon_direction(const Moment* m, const Gradient* gradient, T* direction, int64_t n, const double* clip,
                    double momentum, bool nesterov, Stream stream);

// A matrix with fewer columns than rows is not transposed: X^T X takes the place of X X^T.
struct NewtonSchulz {
  int64_t rows = 0, columns = 0;
  int steps = 5;
  double a = 0, b = 0, c = 0, eps = 0, scale = 1;
};
// Processes the matrices one after another. `pieces` is in host memory; those of one matrix are consecutive.
template <class T>
void newton_schulz(const NewtonSchulz& problem, T* buffer, std::span<const MatrixPiece> pieces,
                   Matmul& matmul, void* workspace, int64_t workspace_bytes, Stream stream);
int64_t newton_schulz_workspace_bytes(int64_t rows, int64_t columns, base::DType dtype);

// The three GEMMs of an iteration, for Matmul::tune: X X^T, its square, and the polynomial times X.
std::vector<GemmArgs> newton_schulz_products(const NewtonSchulz& problem, base::DType dtype, void* workspace);

}  // namespace quintet::kernels::cuda

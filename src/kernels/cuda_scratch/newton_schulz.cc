#include "kernels/cuda/optimizer/newton_schulz.h"

#include <algorithm>

#include "kernels/cuda/reduce/reduce.h"
#include "kernels/cuda_scratch/sizes.h"

namespace quintet::kernels::cuda {

// X twice, two matrices of its smaller side, the sum of squares and its partial sums, and the library's
// scratch.
int64_t newton_schulz_workspace_bytes(int64_t rows, int64_t columns, base::DType dtype) {
  const int64_t small = std::min(rows, columns), element = base::size_of(dtype);
  return 2 * aligned(rows * columns * element) + 2 * aligned(small * small * element) +
         aligned(int64_t{sizeof(double)}) + aligned(reduce_workspace_bytes(rows * columns)) +
         Matmul::kWorkspaceBytes;
}

}  // namespace quintet::kernels::cuda

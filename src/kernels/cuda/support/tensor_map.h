// Tensor maps for bulk tensor copies (Hopper on).
#pragma once

#include <cuda.h>

#include "kernels/cuda/support/types.h"

namespace quintet::kernels::cuda {

// Whether the driver can encode tensor maps.
bool has_tensor_maps();

// Up to three dims, the contiguous one first; strides of dims 1 and 2 in bytes, multiples of 16. Boxes may
// extend past the tensor: elements outside are read as zeros. Swizzled boxes are 128 bytes wide.
struct TensorDims {
  int rank = 2;
  int64_t sizes[3] = {1, 1, 1}, strides[2] = {0, 0};
  int box[3] = {1, 1, 1};
  bool swizzle = true;
};
CUtensorMap describe_tensor(const void* from, base::DType type, const TensorDims& dims, const char* what);

}  // namespace quintet::kernels::cuda

// Descriptions of tensors for bulk tensor copies (Hopper on).
#pragma once

#include <cuda.h>

#include "kernels/cuda/support/types.h"

namespace quintet::kernels::cuda {

// Whether the driver can describe tensors.
bool has_tensor_maps();

// Up to three dims, the contiguous one first; strides in bytes, of dims 1 and 2, multiples of 16. Boxes may
// reach past the tensor: what lies outside comes as zeros. Swizzled boxes are 64 elements of 16 bits wide.
struct TensorDims {
  int rank = 2;
  int64_t sizes[3] = {1, 1, 1}, strides[2] = {0, 0};
  int box[3] = {1, 1, 1};
  bool swizzle = true;
};
CUtensorMap describe_tensor(const void* from, base::DType type, const TensorDims& dims, const char* what);

}  // namespace quintet::kernels::cuda

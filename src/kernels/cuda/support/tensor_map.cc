#include "kernels/cuda/support/tensor_map.h"

#include <cuda_runtime_api.h>

#include "kernels/cuda/support/error.h"

namespace quintet::kernels::cuda {
namespace {

// The driver's function, found at run time: nothing else here needs the driver API.
using Encode = decltype(&cuTensorMapEncodeTiled);
Encode encoder() {
  static const Encode found = [] {
    void* at = nullptr;
    cudaDriverEntryPointQueryResult result{};
    const auto status =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &at, 12000, cudaEnableDefault, &result);
    return status == cudaSuccess && result == cudaDriverEntryPointSuccess ? reinterpret_cast<Encode>(at)
                                                                          : nullptr;
  }();
  return found;
}

CUtensorMapDataType map_type(base::DType type) {
  switch (type) {
    case base::DType::BF16:
      return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    case base::DType::F16:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    case base::DType::F64:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT64;
    default:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
  }
}

}  // namespace

bool has_tensor_maps() { return encoder() != nullptr; }

CUtensorMap describe_tensor(const void* from, base::DType type, const TensorDims& d, const char* what) {
  CUtensorMap map{};
  cuuint64_t sizes[3], strides[2];
  cuuint32_t box[3], steps[3] = {1, 1, 1};
  for (int i = 0; i < 3; ++i) {
    sizes[i] = static_cast<cuuint64_t>(d.sizes[i]);
    box[i] = static_cast<cuuint32_t>(d.box[i]);
    if (i < 2) strides[i] = static_cast<cuuint64_t>(d.strides[i]);
  }
  const CUresult status =
      encoder()(&map, map_type(type), static_cast<cuuint32_t>(d.rank), const_cast<void*>(from), sizes,
                strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                d.swizzle ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_NONE,
                CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS)
    fail(std::string(what) + ": the driver cannot encode a tensor map of " + std::to_string(d.sizes[0]) +
         " x " + std::to_string(d.sizes[1]) + " x " + std::to_string(d.sizes[2]) + " (error " +
         std::to_string(static_cast<int>(status)) + ")");
  return map;
}

}  // namespace quintet::kernels::cuda

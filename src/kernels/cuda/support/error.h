// Failures of the CUDA libraries. Separate from base/error.h because nvcc cannot compile fmt.
#pragma once

#include <string>

namespace quintet::kernels::cuda {

// Throws base::InternalError.
[[noreturn]] void fail(const std::string& message);

}  // namespace quintet::kernels::cuda

// Failures of the CUDA libraries. Apart from base/error.h because nvcc cannot read fmt.
#pragma once

#include <string>

namespace quintet::kernels::cuda {

// Throws base::InternalError.
[[noreturn]] void fail(const std::string& message);

}  // namespace quintet::kernels::cuda

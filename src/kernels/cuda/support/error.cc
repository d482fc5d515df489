#include "kernels/cuda/support/error.h"

#include "base/error.h"

namespace quintet::kernels::cuda {

void fail(const std::string& message) { throw base::InternalError(message); }

}  // namespace quintet::kernels::cuda

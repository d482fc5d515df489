#include "exec/cuda/kernel.h"

#include <map>

namespace quintet::exec::cuda {

#include "exec/bind/families.inc"

const Kernel& find_kernel(const graph::OpDef& op, const std::vector<OpKernels>& extra) {
  for (const OpKernels& k : extra)
    if (k.op == &op && k.cuda != nullptr) return *k.cuda;
  const Kernel* const kernel = built_in_kernel(op);
  QUINTET_CHECK(kernel != nullptr, "[{}] has no CUDA kernel", op.name);
  return *kernel;
}

}  // namespace quintet::exec::cuda

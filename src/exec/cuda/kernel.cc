#include "exec/cuda/kernel.h"

#include <map>

namespace quintet::exec::cuda {

const Kernel& find_kernel(const graph::OpDef& op, const std::vector<OpKernels>& extra) {
  for (const OpKernels& k : extra)
    if (k.op == &op && k.cuda != nullptr) return *k.cuda;
  static const std::map<const graph::OpDef*, const Kernel*> table = [] {
    std::map<const graph::OpDef*, const Kernel*> t;
    for (const auto* list : {&matmul_kernels(), &attention_kernels(), &norm_kernels(), &elementwise_kernels(),
                             &vocab_kernels(), &routing_kernels(), &expert_kernels(), &step_kernels(),
                             &matrix_kernels(), &factor_kernels(), &generate_kernels()})
      for (const Kernel& k : *list) t[k.op] = &k;
    return t;
  }();
  const auto it = table.find(&op);
  QUINTET_CHECK(it != table.end(), "[{}] has no CUDA kernel", op.name);
  return *it->second;
}

}  // namespace quintet::exec::cuda

#include "exec/cpu/kernel.h"

#include <map>

#include "exec/decode/scratch.h"

namespace quintet::exec::cpu {

const Kernel& find_kernel(const graph::OpDef& op, const std::vector<OpKernels>& extra) {
  for (const OpKernels& k : extra)
    if (k.op == &op && k.cpu != nullptr) return *k.cpu;
  static const std::map<const graph::OpDef*, const Kernel*> table = [] {
    std::map<const graph::OpDef*, const Kernel*> t;
    for (const auto* list : {&matmul_kernels(), &attention_kernels(), &norm_kernels(), &elementwise_kernels(),
                             &vocab_kernels(), &routing_kernels(), &expert_kernels(), &step_kernels(),
                             &matrix_kernels(), &factor_kernels(), &generate_kernels()})
      for (const Kernel& k : *list) t[k.op] = &k;
    return t;
  }();
  const auto it = table.find(&op);
  QUINTET_CHECK(it != table.end(), "[{}] has no CPU kernel", op.name);
  return *it->second;
}

int64_t workspace_bytes(const program::Instr& instr, int threads, const std::vector<OpKernels>& extra) {
  const Kernel& k = find_kernel(*instr.op, extra);
  return k.workspace_bytes != nullptr ? k.workspace_bytes(instr, threads) : cpu_scratch_bytes(instr, threads);
}

}  // namespace quintet::exec::cpu

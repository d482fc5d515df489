#include "exec/cpu/kernel.h"

#include <map>

#include "exec/decode/scratch.h"

namespace quintet::exec::cpu {

#include "exec/bind/families.inc"

const Kernel& find_kernel(const graph::OpDef& op, const std::vector<OpKernels>& extra) {
  for (const OpKernels& k : extra)
    if (k.op == &op && k.cpu != nullptr) return *k.cpu;
  const Kernel* const kernel = built_in_kernel(op);
  QUINTET_CHECK(kernel != nullptr, "[{}] has no CPU kernel", op.name);
  return *kernel;
}

int64_t workspace_bytes(const program::Instr& instr, int threads, const std::vector<OpKernels>& extra) {
  const Kernel& k = find_kernel(*instr.op, extra);
  return k.workspace_bytes != nullptr ? k.workspace_bytes(instr, threads) : cpu_scratch_bytes(instr, threads);
}

}  // namespace quintet::exec::cpu

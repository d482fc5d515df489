#include "exec/decode/scratch.h"

#include <map>

namespace quintet::exec {

const Scratch* find_scratch(const graph::OpDef* op) {
  static const std::map<const graph::OpDef*, const Scratch*> table = [] {
    std::map<const graph::OpDef*, const Scratch*> t;
    for (const auto* list : {&matmul_scratch(), &attention_scratch(), &norm_scratch(), &elementwise_scratch(),
                             &vocab_scratch(), &routing_scratch(), &expert_scratch(), &step_scratch(),
                             &matrix_scratch(), &generate_scratch(), &quantize_scratch()})
      for (const Scratch& s : *list) t[s.op] = &s;
    return t;
  }();
  const auto it = table.find(op);
  return it == table.end() ? nullptr : it->second;
}

int64_t cpu_scratch_bytes(const program::Instr& instr, int threads) {
  const Scratch* const s = find_scratch(instr.op);
  return s != nullptr && s->cpu != nullptr ? s->cpu(instr, threads) : 0;
}

int64_t cuda_scratch_bytes(const program::Instr& instr) {
  const Scratch* const s = find_scratch(instr.op);
  return s != nullptr && s->cuda != nullptr ? s->cuda(instr) : 0;
}

}  // namespace quintet::exec

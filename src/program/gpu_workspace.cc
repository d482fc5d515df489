#include "program/gpu_workspace.h"

#include <algorithm>
#include <set>

namespace quintet::program {
namespace {

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Ids with their places twice (sorting goes from one to the other), counts of 256 digits for every 1024 ids,
// and two rows for every tile of 16 tokens.
int64_t embedding_bytes(int64_t tokens, int64_t width) {
  constexpr int64_t kPair = 8, kDigits = 256, kSorted = 1024, kTile = 16, kAlign = 256;
  const int64_t pairs = divide_up(tokens * kPair, kAlign) * kAlign;
  return 2 * pairs + divide_up(divide_up(tokens, kSorted) * kDigits * 4, kAlign) * kAlign +
         divide_up(tokens, kTile) * 2 * width * 4;
}

}  // namespace

int64_t gpu_workspace_bytes(const Instr& instr) {
  if (instr.kind != InstrKind::Compute) return 0;
  static const std::set<const graph::OpDef*> capped = {
      &graph::kLinear,        &graph::kLinearDx,        &graph::kLinearDw,
      &graph::kRouter,        &graph::kRouterDx,        &graph::kRouterDw,
      &graph::kGroupedLinear, &graph::kGroupedLinearDx, &graph::kGroupedLinearDw};
  if (capped.contains(instr.op)) return kGpuMatmulWorkspace;
  if (instr.op == &graph::kAttentionDx || instr.op == &graph::kAttentionHopDx) {
    const graph::Type& q = instr.in[1].type;  // tokens, heads, head_dim
    return q.count() * 4 + 2 * q.size(0) * q.size(1) * 4;
  }
  if (instr.op == &graph::kEmbeddingDw) {
    const graph::Type& dy = instr.in[1].type;
    return embedding_bytes(dy.size(0), dy.count() / std::max<int64_t>(dy.size(0), 1));
  }
  if (instr.op == &graph::kLossGrad) return instr.in[0].type.size(0) * 8;
  return 0;
}

}  // namespace quintet::program

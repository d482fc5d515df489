#include "exec/cuda_scratch/workspace.h"

#include <algorithm>
#include <map>

#include "exec/cuda_scratch/shapes.h"
#include "exec/with_type.h"
#include "kernels/cuda/attention/hops.h"
#include "kernels/cuda/attention/tiled.h"
#include "kernels/cuda/embedding/embedding.h"
#include "kernels/cuda/experts/balance.h"
#include "kernels/cuda/experts/dispatch.h"
#include "kernels/cuda/experts/router.h"
#include "kernels/cuda/experts/router_limit.h"
#include "kernels/cuda/loss/loss.h"
#include "kernels/cuda/matmul/grouped_matmul.h"
#include "kernels/cuda/matmul/matmul.h"
#include "kernels/cuda/norm/norm.h"
#include "kernels/cuda/reduce/reduce.h"
#include "program/flat_ranges.h"

namespace quintet::exec::cuda {
namespace {

using graph::Type;
using program::Instr;
namespace k = kernels::cuda;

int64_t matmul_bytes(const Instr&) { return k::Matmul::kWorkspaceBytes; }

int64_t library_bytes(const Instr& i, const k::AttentionShape& s, bool backward) {
  return by_hops(i, s) ? k::AttentionHops::workspace_bytes(s, masks_of(i), backward)
                       : k::Attention::workspace_bytes(s, masks_of(i), backward);
}

// For the kernels that run where cuDNN does not: it may turn out to have no plan.
int64_t own_attention_bytes(const Instr& i, const k::AttentionShape& s, size_t first, bool backward) {
  if (suits_tiles(i, s, first)) return kKeyBytes + k::TiledAttention::workspace_bytes(s, backward);
  if (!backward) return kKeyBytes;
  return kKeyBytes + with_type(i.in[first].type.dtype,
                               [&]<class T>(T) { return k::attention_backward_workspace_bytes<T>(s); });
}

int64_t attention_bytes(const Instr& i, size_t first, size_t rest, bool backward) {
  const k::AttentionShape s = attention_shape(i, first, rest);
  const int64_t own = own_attention_bytes(i, s, first, backward);
  return suits_library(i, s, first) ? std::max(own, library_bytes(i, s, backward)) : own;
}
int64_t attention_bytes(const Instr& i) {
  return attention_bytes(i, 0, i.op == &graph::kQkvAttention ? 1 : 3, false);
}
int64_t attention_dx_bytes(const Instr& i) {
  return attention_bytes(i, 1, i.op == &graph::kQkvAttentionDx ? 4 : 6, true);
}

int64_t rms_norm_dw_bytes(const Instr& i) {
  const Type& x = i.in[0].type;
  return with_type(x.dtype,
                   [&]<class T>(T) { return k::rmsnorm_dw_workspace_bytes<T>(num_rows(x), last_size(x)); });
}

int64_t layer_norm_dw_bytes(const Instr& i) {
  const Type& x = i.in[0].type;
  return with_type(x.dtype,
                   [&]<class T>(T) { return k::layernorm_dw_workspace_bytes<T>(num_rows(x), last_size(x)); });
}

int64_t sum_rows_bytes(const Instr& i) {
  const Type& x = i.in[0].type;
  return with_type(x.dtype,
                   [&]<class T>(T) { return k::column_sum_workspace_bytes<T>(x.size(0), columns(x)); });
}

// The derived key.
int64_t dropout_bytes(const Instr&) { return int64_t{sizeof(uint64_t)}; }

int64_t embedding_dw_bytes(const Instr& i) {
  const Type &dy = i.in[1].type, &table = i.out[0].type;
  return with_type(dy.dtype, [&]<class T>(T) {
    return k::embedding_dw_workspace_bytes<T>(dy.size(0), table.size(0), table.size(1));
  });
}

int64_t loss_grad_bytes(const Instr& i) { return k::cross_entropy_workspace_bytes(i.in[0].type.size(0)); }

int64_t router_dw_bytes(const Instr& i) {
  return with_type(i.in[1].type.dtype,
                   [&]<class T>(T) { return k::router_dw_workspace_bytes<T>(router_backward_shape(i)); });
}

int64_t limit_bytes(const Instr& i) { return k::limit_workspace_bytes(limit_shape(i)); }

int64_t expert_load_bytes(const Instr& i) { return k::expert_load_workspace_bytes(load_shape(i)); }

int64_t balance_sums_bytes(const Instr& i) {
  const Type& scores = i.in[0].type;
  return k::balance_sums_workspace_bytes(sums_order(i.attrs, scores.size(0)), scores.size(1));
}

int64_t z_loss_bytes(const Instr& i) { return k::z_loss_workspace_bytes(i.in[0].type.size(0)); }

int64_t route_bytes(const Instr& i) {
  const Type& kept = i.in[0].type;
  return k::route_workspace_bytes(kept.size(0), kept.size(1), i.out[1].type.size(0));
}

int64_t pack_bytes(const Instr& i) {
  return k::pack_rows_workspace_bytes(i.in[0].type.size(0), i.attrs.integer("choices"));
}
int64_t unpack_bytes(const Instr& i) {
  return k::unpack_rows_workspace_bytes(i.out[0].type.size(0), i.attrs.integer("choices"));
}

int64_t regroup_bytes(const Instr& i) {
  const int64_t experts = i.attrs.integer("experts");
  return k::regroup_workspace_bytes(i.in[1].type.size(0) / experts, experts);
}

int64_t grouped_bytes(const Instr& i) { return k::grouped_workspace_bytes(grouped_with_weight(i)); }
int64_t grouped_dw_bytes(const Instr& i) { return k::grouped_workspace_bytes(grouped_of_weight(i)); }

// The number of rows received.
int64_t routed_rows_bytes(const Instr&) { return int64_t{sizeof(int64_t)}; }

int64_t sum_squares_bytes(const Instr& i) {
  int64_t bytes = 0;
  for (const program::FlatRange& r : program::flat_ranges(i)) bytes += k::reduce_workspace_bytes(r.count);
  return bytes;
}

using Bytes = int64_t (*)(const Instr&);

const std::map<const graph::OpDef*, Bytes>& table() {
  static const std::map<const graph::OpDef*, Bytes> ops = {{&graph::kLinear, matmul_bytes},
                                                           {&graph::kLinearDx, matmul_bytes},
                                                           {&graph::kLinearDw, matmul_bytes},
                                                           {&graph::kLinears, matmul_bytes},
                                                           {&graph::kLinearsDx, matmul_bytes},
                                                           {&graph::kLinearsDw, matmul_bytes},
                                                           {&graph::kAttention, attention_bytes},
                                                           {&graph::kAttentionDx, attention_dx_bytes},
                                                           {&graph::kQkvAttention, attention_bytes},
                                                           {&graph::kQkvAttentionDx, attention_dx_bytes},
                                                           {&graph::kAttentionHop, attention_bytes},
                                                           {&graph::kAttentionHopDx, attention_dx_bytes},
                                                           {&graph::kRmsNormDw, rms_norm_dw_bytes},
                                                           {&graph::kRmsNormBackward, rms_norm_dw_bytes},
                                                           {&graph::kLayerNormDw, layer_norm_dw_bytes},
                                                           {&graph::kLayerNormBackward, layer_norm_dw_bytes},
                                                           {&graph::kSumRows, sum_rows_bytes},
                                                           {&graph::kDropout, dropout_bytes},
                                                           {&graph::kEmbeddingDw, embedding_dw_bytes},
                                                           {&graph::kLossGrad, loss_grad_bytes},
                                                           {&graph::kCrossEntropy, loss_grad_bytes},
                                                           {&graph::kRouterDw, router_dw_bytes},
                                                           {&graph::kLimit, limit_bytes},
                                                           {&graph::kExpertLoad, expert_load_bytes},
                                                           {&graph::kBalanceSums, balance_sums_bytes},
                                                           {&graph::kZLoss, z_loss_bytes},
                                                           {&graph::kRoute, route_bytes},
                                                           {&graph::kPack, pack_bytes},
                                                           {&graph::kUnpack, unpack_bytes},
                                                           {&graph::kRegroup, regroup_bytes},
                                                           {&graph::kGroupedLinear, grouped_bytes},
                                                           {&graph::kGroupedLinearDx, grouped_bytes},
                                                           {&graph::kGroupedLinearDw, grouped_dw_bytes},
                                                           {&graph::kExpertAct, routed_rows_bytes},
                                                           {&graph::kExpertActDx, routed_rows_bytes},
                                                           {&graph::kSumSquares, sum_squares_bytes}};
  return ops;
}

}  // namespace

int64_t workspace_bytes(const Instr& instr) {
  const auto it = table().find(instr.op);
  return it == table().end() ? 0 : it->second(instr);
}

std::vector<const graph::OpDef*> ops_with_workspace() {
  std::vector<const graph::OpDef*> ops;
  for (const auto& [op, bytes] : table()) ops.push_back(op);
  return ops;
}

}  // namespace quintet::exec::cuda

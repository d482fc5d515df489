// Scratch sizes of the kernels in kernels/cuda; contracts in their headers.
#include <type_traits>

#include "kernels/cuda/embedding/embedding.h"
#include "kernels/cuda/experts/balance.h"
#include "kernels/cuda/experts/dispatch.h"
#include "kernels/cuda/experts/router.h"
#include "kernels/cuda/experts/router_limit.h"
#include "kernels/cuda/loss/loss.h"
#include "kernels/cuda/matmul/grouped_matmul.h"
#include "kernels/cuda/norm/norm.h"
#include "kernels/cuda/reduce/reduce.h"
#include "kernels/cuda_scratch/sizes.h"

namespace quintet::kernels::cuda {

// Partial sums of the fused kernel's blocks, or of the chunks of the fallback, which takes all other shapes.
template <class T>
int64_t rmsnorm_dw_workspace_bytes(int64_t rows, int64_t n) {
  const int64_t chunks = column_chunks(rows, n);
  const int64_t partials = chunks > kNormPartials || std::is_same_v<T, double> ? chunks : kNormPartials;
  return partials * n * static_cast<int64_t>(sizeof(Stat<T>));
}
template <class T>
int64_t layernorm_dw_workspace_bytes(int64_t rows, int64_t n) {
  return 2 * rmsnorm_dw_workspace_bytes<T>(rows, n);
}

int64_t reduce_workspace_bytes(int64_t n) {
  return divide_up(n, kReduceChunk) * static_cast<int64_t>(sizeof(double));
}
template <class T>
int64_t column_sum_workspace_bytes(int64_t rows, int64_t n) {
  return column_chunks(rows, n) * n * static_cast<int64_t>(sizeof(Stat<T>));
}

template <class T>
int64_t embedding_dw_workspace_bytes(int64_t tokens, int64_t vocab_local, int64_t n) {
  const EmbeddingScratch s = embedding_scratch(tokens, vocab_local, n);
  return aligned(s.by_row_bytes) + aligned(s.used_bytes) + aligned(s.present_bytes) +
         aligned(s.arrived_bytes) +
         divide_up(tokens, kEmbeddingSegment) * 2 * n * static_cast<int64_t>(sizeof(Stat<T>));
}

int64_t cross_entropy_workspace_bytes(int64_t rows) { return rows * static_cast<int64_t>(sizeof(double)); }

template <class T>
int64_t router_dw_workspace_bytes(const RouterShape& s) {
  return router_chunks(s.rows) * s.routes * s.embed * static_cast<int64_t>(sizeof(Stat<T>));
}
int64_t limit_workspace_bytes(const LimitShape& s) {
  const int64_t pairs = s.order.rows() * s.k, groups = s.order.sequences / s.group;
  return aligned(pairs * int64_t{sizeof(LimitPair)}) +
         aligned(groups * kLimitColumns * int64_t{sizeof(LimitColumn)}) +
         groups * deal_bytes(groups > 0 ? pairs / groups : 0, kLimitColumns);
}

int64_t expert_load_workspace_bytes(const LoadShape& s) {
  return balance_chunks(s.rows) * (s.experts + 2) * static_cast<int64_t>(sizeof(double));
}
int64_t balance_sums_workspace_bytes(const base::RowOrder& order, int64_t experts) {
  return order.sequences * balance_chunks(order.seq_len) * 2 * experts * static_cast<int64_t>(sizeof(double));
}
int64_t z_loss_workspace_bytes(int64_t rows) {
  return balance_chunks(rows) * static_cast<int64_t>(sizeof(double));
}

int64_t route_workspace_bytes(int64_t tokens, int64_t choices, int64_t experts) {
  return route_tiles(experts) * deal_bytes(tokens * choices, route_columns(experts));
}
// Rows before each count, by expert and then by sender; where each expert's slots begin, and those of a pass.
int64_t split_rows_workspace_bytes(const PassShape& s) {
  return (s.members * s.all_experts + 1 + 2 * (s.all_experts + 1)) * int64_t{sizeof(int64_t)};
}
// Both directions: the slot of each pair.
int64_t pack_rows_workspace_bytes(int64_t tokens, int64_t choices) {
  return tokens * choices * int64_t{sizeof(int32_t)};
}
int64_t unpack_rows_workspace_bytes(int64_t tokens, int64_t choices) {
  return tokens * choices * int64_t{sizeof(int32_t)};
}
int64_t regroup_workspace_bytes(int64_t sources, int64_t experts) {
  return (2 * sources * experts + 1) * int64_t{sizeof(int64_t)};
}
// The first row of each expert, and the end.
int64_t grouped_workspace_bytes(const GroupedArgs& shape) {
  return (shape.experts + 1) * static_cast<int64_t>(sizeof(int64_t));
}

#define INSTANTIATE(T)                                                                \
  template decltype(rmsnorm_dw_workspace_bytes<T>) rmsnorm_dw_workspace_bytes<T>;     \
  template decltype(layernorm_dw_workspace_bytes<T>) layernorm_dw_workspace_bytes<T>; \
  template decltype(column_sum_workspace_bytes<T>) column_sum_workspace_bytes<T>;     \
  template decltype(embedding_dw_workspace_bytes<T>) embedding_dw_workspace_bytes<T>; \
  template decltype(router_dw_workspace_bytes<T>) router_dw_workspace_bytes<T>;
INSTANTIATE(double)
INSTANTIATE(float)
INSTANTIATE(Bf16)
INSTANTIATE(F16)
#undef INSTANTIATE

}  // namespace quintet::kernels::cuda

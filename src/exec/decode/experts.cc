#include "exec/decode/experts.h"

#include "exec/decode/scratch.h"
#include "kernels/cpu/experts/dispatch.h"
#include "kernels/cpu/matmul/grouped_gemm.h"
#include "kernels/cuda/experts/dispatch.h"
#include "kernels/cuda/matmul/grouped_matmul.h"

namespace quintet::exec {
namespace {

using graph::Type;
using program::Instr;
namespace k = kernels::cpu;

// Rows, experts and the two widths: rows x out and rows x in with out x in weights.
kernels::GroupedArgs grouped(const Instr& i, int64_t experts, int64_t out, int64_t in) {
  return {.rows = i.in[0].type.size(0),
          .experts = experts,
          .out = out,
          .in = in,
          .sources = experts > 0 ? i.in[2].type.size(0) / experts : 0,
          .type = i.in[0].type.dtype,
          .c_type = i.out[0].type.dtype};
}

kernels::GroupedArgs grouped_with_weight(const Instr& i) {  // x or dy, w, received
  const Type& w = i.in[1].type;
  return grouped(i, w.size(0), w.size(1), w.size(2));
}
kernels::GroupedArgs grouped_of_weight(const Instr& i) {  // dy, x, received -> dw
  const Type& dw = i.out[0].type;
  return grouped(i, dw.size(0), dw.size(1), dw.size(2));
}

kernels::GroupedArgs with_operands(const Operands& b, kernels::GroupedArgs args) {
  args.received = b.input<int32_t>(2);
  args.a = b.in[0];
  args.b = b.in[1];
  args.c = b.out[0];
  return args;
}

int64_t route_bytes(const Instr& i, int) { return k::route_workspace_bytes(i.out[1].type.size(0)); }
int64_t unpack_bytes(const Instr& i, int) {
  return k::unpack_rows_workspace_bytes(i.out[0].type.size(0), i.attrs.integer("choices"));
}
int64_t regroup_bytes(const Instr& i, int) {
  const int64_t experts = i.attrs.integer("experts");
  return k::regroup_workspace_bytes(i.in[1].type.size(0) / experts, experts);
}
int64_t expert_bias_dw_bytes(const Instr& i, int) { return sums_bytes(i, {0}); }
int64_t grouped_bytes(const Instr& i, int threads) {
  return kernels::grouped_workspace_bytes(grouped_with_weight(i), threads);
}
int64_t grouped_dw_bytes(const Instr& i, int threads) {
  return kernels::grouped_workspace_bytes(grouped_of_weight(i), threads);
}

int64_t cuda_route_bytes(const Instr& i) {
  const Type& kept = i.in[0].type;
  return kernels::cuda::route_workspace_bytes(kept.size(0), kept.size(1), i.out[1].type.size(0));
}
int64_t cuda_split_rows_bytes(const Instr& i) {
  const int64_t all = i.attrs.integer("all_experts");
  return kernels::cuda::split_rows_workspace_bytes(
      {.members = i.in[1].type.size(0) / all, .all_experts = all});
}
int64_t cuda_pack_bytes(const Instr& i) {
  return kernels::cuda::pack_rows_workspace_bytes(i.in[0].type.size(0), i.attrs.integer("choices"));
}
int64_t cuda_unpack_bytes(const Instr& i) {
  return kernels::cuda::unpack_rows_workspace_bytes(i.out[0].type.size(0), i.attrs.integer("choices"));
}
int64_t cuda_regroup_bytes(const Instr& i) {
  const int64_t experts = i.attrs.integer("experts");
  return kernels::cuda::regroup_workspace_bytes(i.in[1].type.size(0) / experts, experts);
}
int64_t cuda_grouped_bytes(const Instr& i) {
  return kernels::cuda::grouped_workspace_bytes(grouped_with_weight(i));
}
int64_t cuda_grouped_dw_bytes(const Instr& i) {
  return kernels::cuda::grouped_workspace_bytes(grouped_of_weight(i));
}
// The number of rows received.
int64_t cuda_routed_rows_bytes(const Instr&) { return int64_t{sizeof(int64_t)}; }

}  // namespace

kernels::GroupedArgs grouped_linear_args(const Operands& b) {
  kernels::GroupedArgs args = with_operands(b, grouped_with_weight(*b.instr));
  if (b.in.size() > 3) args.addend = b.in[3];
  return args;
}

kernels::GroupedArgs grouped_linear_dw_args(const Operands& b, bool accumulate) {
  kernels::GroupedArgs args = with_operands(b, grouped_of_weight(*b.instr));
  args.accumulate = accumulate;
  return args;
}

const std::vector<Scratch>& expert_scratch() {
  static const std::vector<Scratch> table = {
      {&graph::kRoute, route_bytes, cuda_route_bytes},
      {&graph::kSplitRows, nullptr, cuda_split_rows_bytes},
      {&graph::kPack, nullptr, cuda_pack_bytes},
      {&graph::kUnpack, unpack_bytes, cuda_unpack_bytes},
      {&graph::kRegroup, regroup_bytes, cuda_regroup_bytes},
      {&graph::kExpertBiasDw, expert_bias_dw_bytes, nullptr},
      {&graph::kGroupedLinear, grouped_bytes, cuda_grouped_bytes},
      {&graph::kGroupedLinearDx, grouped_bytes, cuda_grouped_bytes},
      {&graph::kGroupedLinearDw, grouped_dw_bytes, cuda_grouped_dw_bytes},
      {&graph::kExpertAct, nullptr, cuda_routed_rows_bytes},
      {&graph::kExpertActDx, nullptr, cuda_routed_rows_bytes}};
  return table;
}

}  // namespace quintet::exec

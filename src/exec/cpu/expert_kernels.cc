// Dispatch to experts, their matmuls and activation.
#include <numeric>

#include "exec/cpu/gradients.h"
#include "exec/decode/experts.h"
#include "kernels/cpu/experts/dispatch.h"
#include "kernels/cpu/experts/expert_act.h"
#include "kernels/cpu/experts/expert_bias.h"
#include "kernels/cpu/matmul/grouped_gemm.h"

namespace quintet::exec::cpu {
namespace {

namespace k = kernels::cpu;

// Number of rows received, checked against the planned maximum.
int64_t sum_of(const decode::Received& r) {
  const int64_t rows = std::accumulate(r.counts, r.counts + r.num_counts, int64_t{0});
  QUINTET_CHECK(rows <= r.most, "{} rows were received, at most {} were planned", rows, r.most);
  return rows;
}

}  // namespace

const std::vector<Kernel>& expert_kernels() {
  static const std::vector<Kernel> table = {
      {&graph::kRoute,
       [](const Bound& b, bool) { decode::route(b, [&](auto... a) { k::route(a..., b.workspace); }); }},
      {&graph::kSplitRows,
       [](const Bound& b, bool) {
         decode::split_rows(b, [](const kernels::PassShape& shape, auto* order, auto* counts, auto* pass,
                                  auto* of_pass, auto* send, auto* received, int32_t* passes) {
           *passes = static_cast<int32_t>(
               k::split_rows(shape, order, counts, pass != nullptr ? *pass : 0, of_pass, send, received));
         });
       }},
      {&graph::kPack,
       [](const Bound& b, bool) {
         decode::pack(
             b, [&](auto* x, auto* order, int64_t, auto... a) { k::pack_rows(x, order, a..., *b.pool); });
       }},
      {&graph::kUnpack,
       [](const Bound& b, bool) {
         decode::unpack(b, [&]<class T>(T, auto... a) { k::unpack_rows<T>(a..., b.workspace, *b.pool); });
       }},
      {&graph::kPackWeights,
       [](const Bound& b, bool) {
         decode::pack_weights(b, []<class S>(S, auto... a) { k::pack_weights<S>(a...); });
       }},
      {&graph::kUnpackWeights,
       [](const Bound& b, bool) {
         decode::unpack_weights(b, []<class S>(S, auto... a) { k::unpack_weights<S>(a...); });
       }},
      {&graph::kRegroup,
       [](const Bound& b, bool) {
         decode::regroup(b, [&](auto... a) { k::regroup(a..., b.workspace, *b.pool); });
       }},
      {&graph::kSumCopies,
       [](const Bound& b, bool) {
         decode::sum_copies(b, [&]<class T>(T, auto... a) { k::sum_copies<T>(a..., *b.pool); });
       }},
      {&graph::kGroupedLinear,
       [](const Bound& b, bool) {
         kernels::grouped_linear(grouped_linear_args(b), b.workspace, b.instr->workspace_bytes, *b.pool);
       }},
      {&graph::kGroupedLinearDx,
       [](const Bound& b, bool) {
         kernels::grouped_linear_dx(grouped_linear_args(b), b.workspace, b.instr->workspace_bytes, *b.pool);
       }},
      {&graph::kGroupedLinearDw,
       [](const Bound& b, bool accumulate) {
         kernels::grouped_linear_dw(grouped_linear_dw_args(b, accumulate), b.workspace,
                                    b.instr->workspace_bytes, *b.pool);
       }},
      {&graph::kExpertAct,
       [](const Bound& b, bool) {
         decode::expert_act(b, [&]<class T>(T, const decode::Received& received, int64_t n, auto... a) {
           k::expert_act<T>(a..., sum_of(received), n, decode::expert_gate(b), *b.pool);
         });
       }},
      {&graph::kExpertActDx,
       [](const Bound& b, bool) {
         decode::expert_act_dx(b, [&]<class T>(T, const decode::Received& received, int64_t n, auto... a) {
           k::expert_act_backward<T>(a..., sum_of(received), n, decode::expert_gate(b), *b.pool);
         });
       }},
      {&graph::kExpertBias,
       [](const Bound& b, bool) {
         decode::expert_bias(b, [&]<class T>(T, auto... a) { k::expert_bias<T>(a..., *b.pool); });
       }},
      {&graph::kExpertBiasDw,
       [](const Bound& b, bool accumulate) {
         decode::expert_bias_dw(b, accumulate,
                                [&]<class T>(T, auto... a) { k::expert_bias_dw<T>(a..., *b.pool); });
       }},
      {&graph::kSpreadChoices,
       [](const Bound& b, bool) {
         decode::spread_choices(b, []<class S>(S, auto... a) { k::spread_choices<S>(a...); });
       }},
      {&graph::kGatherChoices,
       [](const Bound& b, bool) {
         decode::gather_choices(b, []<class S>(S, auto... a) { k::gather_choices<S>(a...); });
       }},
      {&graph::kScaleRows,
       [](const Bound& b, bool) {
         decode::scale_rows(b, [&]<class T>(T, auto... a) { k::scale_rows<T>(a..., *b.pool); });
       }},
      {&graph::kScaleRowsDx,
       [](const Bound& b, bool) {
         decode::scale_rows_dx(b, [&]<class T>(T, auto... a) { k::scale_rows_backward<T>(a..., *b.pool); });
       }},
  };
  return table;
}

}  // namespace quintet::exec::cpu

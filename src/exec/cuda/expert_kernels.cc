// Dispatch to experts, their matmuls and activation.
#include "exec/cuda/gradients.h"
#include "exec/decode/experts.h"
#include "kernels/cuda/experts/dispatch.h"
#include "kernels/cuda/experts/expert_act.h"
#include "kernels/cuda/experts/expert_bias.h"
#include "kernels/cuda/matmul/grouped_matmul.h"

namespace quintet::exec::cuda {
namespace {

namespace k = kernels::cuda;

// Number of rows received, at most the planned maximum: counted on the device, into the scratch.
const int64_t* sum_of(const Bound& b, const decode::Received& r) {
  auto* const rows = reinterpret_cast<int64_t*>(b.workspace);
  k::count_rows(r.counts, r.num_counts, r.most, rows, b.stream);
  return rows;
}

}  // namespace

const std::vector<Kernel>& expert_kernels() {
  static const std::vector<Kernel> table = {
      {&graph::kRoute,
       [](const Bound& b, bool) {
         decode::route(b, [&](auto... a) { k::route(a..., b.workspace, b.stream); });
       }},
      {&graph::kSplitRows,
       [](const Bound& b, bool) {
         decode::split_rows(b, [&](auto... a) { k::split_rows(a..., b.workspace, b.stream); });
       }},
      {&graph::kPack,
       [](const Bound& b, bool) {
         decode::pack(b, [&](auto... a) { k::pack_rows(a..., b.workspace, b.stream); });
       }},
      {&graph::kUnpack,
       [](const Bound& b, bool) {
         decode::unpack(b, [&]<class T>(T, auto... a) { k::unpack_rows<T>(a..., b.workspace, b.stream); });
       }},
      {&graph::kPackWeights,
       [](const Bound& b, bool) {
         decode::pack_weights(b, [&]<class S>(S, auto... a) { k::pack_weights<S>(a..., b.stream); });
       }},
      {&graph::kUnpackWeights,
       [](const Bound& b, bool) {
         decode::unpack_weights(b, [&]<class S>(S, auto... a) { k::unpack_weights<S>(a..., b.stream); });
       }},
      {&graph::kRegroup,
       [](const Bound& b, bool) {
         decode::regroup(b, [&](auto... a) { k::regroup(a..., b.workspace, b.stream); });
       }},
      {&graph::kSumCopies,
       [](const Bound& b, bool) {
         decode::sum_copies(b, [&]<class T>(T, auto... a) { k::sum_copies<T>(a..., b.stream); });
       }},
      {&graph::kGroupedLinear,
       [](const Bound& b, bool) { k::grouped_linear(grouped_linear_args(b), b.workspace, b.stream); }},
      {&graph::kGroupedLinearDx,
       [](const Bound& b, bool) { k::grouped_linear_dx(grouped_linear_args(b), b.workspace, b.stream); }},
      {&graph::kGroupedLinearDw,
       [](const Bound& b, bool accumulate) {
         k::grouped_linear_dw(grouped_linear_dw_args(b, accumulate), b.workspace, b.stream);
       }},
      {&graph::kExpertAct,
       [](const Bound& b, bool) {
         decode::expert_act(b, [&]<class T>(T, const decode::Received& received, int64_t n, auto... a) {
           k::expert_act<T>(a..., sum_of(b, received), received.most, n, decode::expert_gate(b), b.stream);
         });
       }},
      {&graph::kExpertActDx,
       [](const Bound& b, bool) {
         decode::expert_act_dx(b, [&]<class T>(T, const decode::Received& received, int64_t n, auto... a) {
           k::expert_act_backward<T>(a..., sum_of(b, received), received.most, n, decode::expert_gate(b),
                                     b.stream);
         });
       }},
      {&graph::kExpertBias,
       [](const Bound& b, bool) {
         decode::expert_bias(b, [&]<class T>(T, auto... a) { k::expert_bias<T>(a..., b.stream); });
       }},
      {&graph::kExpertBiasDw,
       [](const Bound& b, bool accumulate) {
         decode::expert_bias_dw(b, accumulate,
                                [&]<class T>(T, auto... a) { k::expert_bias_dw<T>(a..., b.stream); });
       }},
      {&graph::kSpreadChoices,
       [](const Bound& b, bool) {
         decode::spread_choices(b, [&]<class S>(S, auto... a) { k::spread_choices<S>(a..., b.stream); });
       }},
      {&graph::kGatherChoices,
       [](const Bound& b, bool) {
         decode::gather_choices(b, [&]<class S>(S, auto... a) { k::gather_choices<S>(a..., b.stream); });
       }},
      {&graph::kScaleRows,
       [](const Bound& b, bool) {
         decode::scale_rows(b, [&]<class T>(T, auto... a) { k::scale_rows<T>(a..., b.stream); });
       }},
      {&graph::kScaleRowsDx,
       [](const Bound& b, bool) {
         decode::scale_rows_dx(b, [&]<class T>(T, auto... a) { k::scale_rows_backward<T>(a..., b.stream); });
       }},
  };
  return table;
}

}  // namespace quintet::exec::cuda

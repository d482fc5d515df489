// The explicit list of ops that are not sharded by their dims alone: nothing registers itself.
#include "graph/adafactor_ops.h"
#include "layout/rules/families.h"

namespace quintet::layout {

const std::vector<OpRule>& built_in_rules() {
  static const std::vector<OpRule> table = {{&graph::kAttention, rules::attention},
                                            {&graph::kAttentionDx, rules::attention_dx},
                                            {&graph::kLimit, rules::with_row_order},
                                            {&graph::kBalanceSums, rules::with_row_order},
                                            {&graph::kBalanceDx, rules::with_row_order},
                                            {&graph::kRoute, rules::route},
                                            {&graph::kUnpack, rules::with_token_rows},
                                            {&graph::kUnpackWeights, rules::with_token_rows},
                                            {&graph::kExchangeCounts, rules::exchange_counts},
                                            {&graph::kToExperts, rules::to_experts},
                                            {&graph::kToTokens, rules::to_tokens},
                                            {&graph::kGroupedLinearDw, rules::grouped_linear_dw},
                                            {&graph::kSumSquares, rules::norm_terms},
                                            {&graph::kMaxAbs, rules::norm_terms},
                                            {&graph::kLambNorms, rules::parameter_norms},
                                            {&graph::kLarsNorms, rules::parameter_norms},
                                            {&graph::kFactorSums, rules::parameter_norms},
                                            {&graph::kFactorNorms, rules::parameter_norms},
                                            {&graph::kUpdateFactors, rules::on_all_ranks},
                                            {&graph::kFactorSizes, rules::on_all_ranks},
                                            {&graph::kStepSums, rules::step_sums},
                                            {&graph::kMuon, rules::elementwise},
                                            {&graph::kClipScale, rules::on_all_ranks},
                                            {&graph::kUpdateBias, rules::on_all_ranks}};
  return table;
}

}  // namespace quintet::layout

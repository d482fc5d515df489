// The explicit list of ops that are sharded neither by their dims nor by their step kind (graph::StepTraits):
// nothing registers itself.
#include "graph/cache_ops.h"
#include "graph/fp8_ops.h"
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
                                            {&graph::kExpertBiasDw, rules::grouped_linear_dw},
                                            {&graph::kSample, rules::sample},
                                            {&graph::kQuantize, rules::quantize},
                                            {&graph::kQuantizeBlocks, rules::quantize_blocks},
                                            {&graph::kStepMaxima, rules::step_maxima},
                                            {&graph::kStepSums, rules::step_sums}};
  return table;
}

}  // namespace quintet::layout

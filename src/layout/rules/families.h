// The rules of the built-in ops, by family. layout/rules/table.cc maps ops to them.
#pragma once

#include "layout/rule.h"

namespace quintet::layout::rules {

// attention.cc
void attention(RuleContext& context, const graph::Node& node);
void attention_dx(RuleContext& context, const graph::Node& node);

// routing.cc: ops that depend on several rows of a sequence, and ops that count token rows.
void with_row_order(RuleContext& context, const graph::Node& node);
void with_token_rows(RuleContext& context, const graph::Node& node);
void route(RuleContext& context, const graph::Node& node);

// experts.cc
void exchange_counts(RuleContext& context, const graph::Node& node);
void to_experts(RuleContext& context, const graph::Node& node);
void to_tokens(RuleContext& context, const graph::Node& node);
void grouped_linear_dw(RuleContext& context, const graph::Node& node);

// cache.cc
void sample(RuleContext& context, const graph::Node& node);

// quantize.cc
void quantize(RuleContext& context, const graph::Node& node);
void quantize_blocks(RuleContext& context, const graph::Node& node);

// step.cc: ops of the optimizer step, on stored values. The rule of a kind; null: none, the op has dims.
Rule of_step(graph::StepKind kind);
void step_sums(RuleContext& context, const graph::Node& node);
void step_maxima(RuleContext& context, const graph::Node& node);

// placement.cc: the op and attributes of a transition.
struct TransitionNode {
  const graph::OpDef* op;
  graph::Attrs attrs;
};
TransitionNode node_of(const Transition& transition);

}  // namespace quintet::layout::rules

#include "graph/graph.h"

#include <fmt/format.h>

#include "base/error.h"
#include "graph/op.h"

namespace quintet::graph {

ValueId Graph::add_value(Value value) {
  if (value.kind == ValueKind::Input && value.input == InputSpec()) value.input.user_name = value.name;
  values_.push_back(std::move(value));
  return ValueId(static_cast<int32_t>(values_.size()) - 1);
}

ValueId Graph::add_input(InputSpec spec, Type type) {
  std::string name = to_string(spec);
  QUINTET_CHECK(parse_input(name) == spec, "an input cannot be called \"{}\"", name);
  return add_value({.name = std::move(name),
                    .type = std::move(type),
                    .kind = ValueKind::Input,
                    .producer = {},
                    .input = std::move(spec)});
}

ValueId Graph::add_param(std::string name, Type type, Param info) {
  info.value = add_value({.name = std::move(name), .type = std::move(type), .kind = ValueKind::Param});
  params_.push_back(info);
  return info.value;
}

Node& Graph::add_node(const OpDef& op, std::vector<ValueId> inputs, Attrs attrs, Phase phase, int block) {
  const int n = static_cast<int>(inputs.size());
  if (n < op.min_inputs || n > op.max_inputs)
    base::fail_user("[{}] takes {} to {} operands, got {}", op.name, op.min_inputs, op.max_inputs, n);
  std::vector<Type> in;
  for (const ValueId id : inputs) {
    QUINTET_CHECK(id.valid() && id.index() < values_.size(), "[{}] operand is not a value of this graph",
                  op.name);
    in.push_back(type(id));
  }
  std::vector<Type> out = op.infer(in, attrs);
  return add_node_typed(op, std::move(inputs), std::move(attrs), phase, block, std::move(out));
}

Node& Graph::add_node_typed(const OpDef& op, std::vector<ValueId> inputs, Attrs attrs, Phase phase, int block,
                            std::vector<Type> out_types) {
  const NodeId id(static_cast<int32_t>(nodes_.size()));
  Node node{.op = &op,
            .attrs = std::move(attrs),
            .inputs = std::move(inputs),
            .outputs = {},
            .phase = phase,
            .block = block};
  for (Type& t : out_types)
    node.outputs.push_back(
        add_value({.name = "", .type = std::move(t), .kind = ValueKind::Result, .producer = id}));
  nodes_.push_back(std::move(node));
  return nodes_.back();
}

Param* Graph::find_param(ValueId id) {
  for (Param& p : params_)
    if (p.value == id) return &p;
  return nullptr;
}

ValueId Graph::find(std::string_view name) const {
  for (size_t i = 0; i < values_.size(); ++i)
    if (values_[i].kind != ValueKind::Result && values_[i].name == name)
      return ValueId(static_cast<int32_t>(i));
  return ValueId();
}

ValueId Graph::find(const InputSpec& spec) const {
  for (size_t i = 0; i < values_.size(); ++i)
    if (values_[i].kind == ValueKind::Input && values_[i].input == spec)
      return ValueId(static_cast<int32_t>(i));
  return ValueId();
}

std::string_view to_string(ScaleOf of) {
  return of == ScaleOf::Input ? "x" : of == ScaleOf::Weight ? "w" : "dy";
}

std::string_view to_string(SumKind kind) {
  switch (kind) {
    case SumKind::Load:
      return "load";
    case SumKind::BalanceLoss:
      return "balance_loss";
    case SumKind::MicroBatchBalance:
      return "micro_batch_balance_loss";
    case SumKind::SequenceBalance:
      return "sequence_balance_loss";
    case SumKind::GlobalBalance:
      return "global_balance_loss";
    case SumKind::ZLoss:
      return "z_loss";
    case SumKind::NextTokenLoss:
      return "next_token_loss";
    case SumKind::Amax:
      return "amax";
    case SumKind::Rounded:
      return "rounded";
    case SumKind::Running:
      return "running";
  }
  return "?";
}

std::optional<SumKind> parse_sum_kind(std::string_view word) {
  for (const SumKind kind : {SumKind::Load, SumKind::BalanceLoss, SumKind::MicroBatchBalance,
                             SumKind::SequenceBalance, SumKind::GlobalBalance, SumKind::ZLoss,
                             SumKind::NextTokenLoss, SumKind::Running, SumKind::Amax, SumKind::Rounded})
    if (to_string(kind) == word) return kind;
  return std::nullopt;
}

std::string_view to_string(Phase p) {
  switch (p) {
    case Phase::F:
      return "F";
    case Phase::B:
      return "B";
    case Phase::W:
      return "W";
  }
  return "?";
}

std::vector<Type> input_types(const Graph& graph, const Node& node) {
  std::vector<Type> types;
  for (const ValueId v : node.inputs) types.push_back(graph.type(v));
  return types;
}

std::vector<Type> output_types(const Graph& graph, const Node& node) {
  std::vector<Type> types;
  for (const ValueId v : node.outputs) types.push_back(graph.type(v));
  return types;
}

}  // namespace quintet::graph

// The logical graph of one micro-batch: values with named dims, nodes in execution order. It says what is
// computed, independent of ranks; the partitioner (room layout) turns it into the local graph of a rank,
// which has the same form plus the ops that change placements.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "graph/attrs.h"
#include "graph/input.h"
#include "graph/type.h"

namespace quintet::graph {

struct OpDef;  // graph/op.h

using ValueId = base::Id<struct ValueTag>;
using NodeId = base::Id<struct NodeTag>;

// F forward, B gradients of activations, W gradients of parameters. A pipeline schedule may separate W from
// B.
enum class Phase : uint8_t { F, B, W };

// A State outlives a micro-batch. In a model's graph it is a small value, equal on all ranks, initially zero,
// changed only at the end of a step (the bias of a router that balances without a loss); in a step's graph
// (step_graph.h) it is a value at the start of the step.
enum class ValueKind : uint8_t { Input, Param, Result, State };

struct Value {
  std::string name;  // unique for inputs and parameters, a hint for results
  Type type;
  ValueKind kind = ValueKind::Result;
  NodeId producer;  // valid for results only
  InputSpec input;  // inputs only; `name` is its text
};

struct Node {
  const OpDef* op = nullptr;
  Attrs attrs;
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
  Phase phase = Phase::F;
  int block = 0;       // 0 embedding, 1..L blocks, L+1 head
  int row_group = -1;  // >= 0: nodes of this group run chunk by chunk over token rows (see program/lower.h)
  // >= 0: nodes of this group are consecutive and run as often as the first of them, next_pass, says. Local
  // graphs only (passes/overflow.h).
  int repeat = -1;
};

enum class Init : uint8_t { Normal, Ones, Zeros };

// What the optimizer and the initialiser need to know about a parameter.
struct Param {
  ValueId value;
  Init init = Init::Normal;
  double stddev = 0.02;
  bool decay = true;      // weight decay applies (not to norms and biases)
  bool trainable = true;  // false: no gradient, no optimizer state, no reduction
  int group = -1;         // index into BuildOptions::groups; -1: in none
  int block = 0;
  std::vector<ValueId> grads;  // contributions in execution order; their sum is the gradient
};

enum class SumKind : uint8_t {
  Load,  // assignments per expert, then dropped assignments and the entropy of scores
  BalanceLoss,
  MicroBatchBalance,  // further balance losses, by scope
  SequenceBalance,
  GlobalBalance,
  ZLoss,
  NextTokenLoss,  // of multi-token prediction: the sum over its labels, not weighted
  Running,        // only persisted to the next micro-batch, never reported
  Amax,           // the largest magnitude of a quantised value: a maximum instead of a sum
  Rounded,        // how many values were quantised, and how many of them saturated or became 0
};
std::string_view to_string(SumKind kind);  // "balance_loss"
std::optional<SumKind> parse_sum_kind(std::string_view word);
inline constexpr std::string_view kSumKindWords =
    R"("load", "balance_loss", "micro_batch_balance_loss", "sequence_balance_loss", "global_balance_loss", )"
    R"("z_loss", "next_token_loss", "running", "amax" or "rounded")";

// A result that is summed over the micro-batches of a step and, at its end, over the ranks: statistics that a
// run reports about its experts and quantised values, and that balancing and scales use.
struct StepSum {
  SumKind kind = SumKind::Load;
  ValueId value;
  int block = 0;
  int scale = -1;  // Amax, Rounded: index into Graph::scales
};

// The scale of the quantised values of a set of linears (passes/quantize.h): inputs, weights or gradients of
// their results.
enum class ScaleOf : uint8_t { Input, Weight, Gradient };
inline constexpr int kNumScaleOf = 3;
std::string_view to_string(ScaleOf of);  // "x", "w", "dy"

struct ScaleDecl {
  std::string set;  // the first weight of the set: "blocks.3.attn.wq.weight"
  ScaleOf of = ScaleOf::Input;
  double largest = 1;  // magnitude of the format
  double initial = 1;  // the scale until a value has been seen
  friend bool operator==(const ScaleDecl&, const ScaleDecl&) = default;
};

// At the end of a step: bias += rate * sign(mean load - load), per expert; `load` is a step sum that begins
// with the assignments per expert.
struct BiasUpdate {
  ValueId bias;  // a State
  ValueId load;
  double rate = 0;
};

class Graph {
 public:
  ValueId add_value(Value value);
  ValueId add_input(InputSpec spec, Type type);
  ValueId add_param(std::string name, Type type, Param info);
  // Adds a node and its result values; types come from the op's inference. Throws UserError when the operands
  // do not match.
  Node& add_node(const OpDef& op, std::vector<ValueId> inputs, Attrs attrs, Phase phase, int block);
  // Adds a node whose output types are given (local graphs: sizes follow the placement).
  Node& add_node_typed(const OpDef& op, std::vector<ValueId> inputs, Attrs attrs, Phase phase, int block,
                       std::vector<Type> out_types);

  const Value& value(ValueId id) const { return values_[id.index()]; }
  Value& value(ValueId id) { return values_[id.index()]; }
  const Type& type(ValueId id) const { return value(id).type; }
  const std::vector<Value>& values() const { return values_; }
  const std::vector<Node>& nodes() const { return nodes_; }
  std::vector<Node>& nodes() { return nodes_; }
  const std::vector<Param>& params() const { return params_; }
  std::vector<Param>& params() { return params_; }
  Param* find_param(ValueId id);
  const Param* find_param(ValueId id) const { return const_cast<Graph*>(this)->find_param(id); }
  ValueId find(std::string_view name) const;  // an input or parameter by name; invalid when absent
  ValueId find(const InputSpec& spec) const;  // an input; invalid when absent

  ValueId loss;  // scalar: sum over valid tokens
  std::vector<StepSum> step_sums;
  std::vector<BiasUpdate> bias_updates;
  std::vector<ScaleDecl> scales;
  ValueId logits;         // inference graphs only
  int64_t row_chunk = 0;  // rows per chunk in row groups; 0: all rows at once
  int num_blocks = 0;     // labels run 0 .. num_blocks - 1

 private:
  std::vector<Value> values_;
  std::vector<Node> nodes_;
  std::vector<Param> params_;
};

std::string_view to_string(Phase p);
// Types of a node's operands, in order.
std::vector<Type> input_types(const Graph& graph, const Node& node);
std::vector<Type> output_types(const Graph& graph, const Node& node);

}  // namespace quintet::graph
